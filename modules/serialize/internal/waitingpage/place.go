package waitingpage

import (
	"math"
	"time"
)

// Place is where a browser stands, as its page shows it.
type Place struct {
	Place    int           // 1 is the next; 0 is not known yet
	Turn     bool          // its turn has come
	Paused   bool          // nobody enters
	Estimate time.Duration // until its turn; 0 is not known
	Lost     bool          // it had an earlier ticket, which is gone
}

// Refresh is how soon a browser without JavaScript comes again: often when its turn is
// near, and several times within hold. It is in whole seconds.
func (p Place) Refresh(hold time.Duration) time.Duration {
	most := max(hold/3, time.Second).Truncate(time.Second)
	if p.Estimate == 0 {
		return min(most, 5*time.Second)
	}
	half := time.Duration(math.Ceil((p.Estimate / 2).Seconds())) * time.Second
	return min(max(half, time.Second), most)
}
