package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// someRules are the rules of the callers in random runs.
var someRules = []serializer.Rule{{}, {}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Many callers come, wait, give up, are evicted and leave at once. The judge looks at each
// that enters. Each gets its turn or a refusal that it asked for, and in the end nothing is
// left.
func engineCrowd(c *crowd) {
	c.Logf("seed %d", c.Seed)
	var group sync.WaitGroup
	for i := range 24 {
		r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		group.Go(func() {
			for n := range 25 {
				if !c.visit(i+n, r) {
					return
				}
			}
		})
	}
	group.Wait()
}

// visit sends one caller of a crowd. It reports whether the engine has answered.
func (c *crowd) visit(i int, r *rand.Rand) bool {
	a := c.arrival(pick(r, "a_", "a_", "b_"))
	a.Rule = pick(r, someRules...)
	allowed := []error{serializer.ErrEvicted}
	hangUp := c.Patience // never
	switch moment := time.Duration(1+r.IntN(20)) * time.Millisecond; r.IntN(10) {
	case 0:
		a.Timeout = moment
		allowed = append(allowed, serializer.ErrTimeout)
	case 1:
		hangUp = moment
		allowed = append(allowed, errHungUp)
	case 2:
		a.MaxWaiting = 1 + r.IntN(8)
		allowed = append(allowed, serializer.ErrFull)
	case 3:
		a.MaxWaiting, a.DropOldest = 1+r.IntN(8), true
		allowed = append(allowed, serializer.ErrSuperseded)
	}
	v := c.start(i, a)
	select {
	case <-v.done:
	case <-time.After(hangUp):
		v.hangUp(errHungUp)
		<-v.done
	}
	if v.err != nil {
		if !slices.ContainsFunc(allowed, func(err error) bool { return errors.Is(v.err, err) }) {
			c.Errorf("%v: %v; expected its turn, or one of %v", v, v.err, allowed)
			return false
		}
		return true
	}
	for range r.IntN(3) {
		runtime.Gosched()
	}
	if r.IntN(10) == 0 { // itself, or nobody, or the one behind
		_ = c.on(i+r.IntN(2)).Evict(context.Background(), a.Queue, v.turn.Token()+uint64(r.IntN(2)))
	}
	v.leave()
	return true
}
