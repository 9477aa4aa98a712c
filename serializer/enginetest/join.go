package enginetest

import (
	"context"
	"errors"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// enterByJoin is Enter by means of Join.
func (v *visitor) enterByJoin(ctx context.Context) (turn serializer.Turn, err error) {
	answered := make(chan struct{})
	wait := serializer.Join(v.engine, v.arrival, func(t serializer.Turn, e error) {
		if v.answers.Add(1) > 1 {
			v.space.Errorf("%v: done was called again, with a turn (%t) and error %v", v, t != nil, e)
			return
		}
		turn, err = t, e
		close(answered)
	})
	defer context.AfterFunc(ctx, func() { wait.GiveUp(context.Cause(ctx)) })()
	<-answered
	v.wait = wait
	return turn, err
}

var (
	errGivenUp = errors.New("given up")
	errTooLate = errors.New("given up too late")
)

// Visitors that join wait until their turn comes, or until they give up. Giving up
// again, or after the wait has ended, does nothing.
func testGiveUp(s *space) {
	s.joining = true
	holder := s.enter(0, s.arrival())
	first, second, third := s.join(0, s.arrival()), s.join(1, s.arrival()), s.join(0, s.arrival())
	second.hangUp(errGivenUp)
	_ = second.refused(serializer.ReasonGone, errGivenUp)
	second.wait.GiveUp(errTooLate)
	first.stillWaits("the holder is inside")
	holder.wait.GiveUp(errTooLate)
	third.stillWaits("the holder is inside, and another one is before it")
	holder.leave()
	first.enters()
	first.wait.GiveUp(errTooLate)
	third.stillWaits("the first is inside")
	first.leave()
	third.enters().leave()
	for _, v := range []*visitor{holder, first, second, third} {
		if n := v.answers.Load(); n != 1 {
			s.Errorf("%v: done was called %d times", v, n)
		}
	}
}
