//go:build attack

package waitingpage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// How many honest browsers lose their places beside absent ones.
func TestAttackHonestBesideAbsent(t *testing.T) {
	for _, places := range []int{1, 20, 200} {
		for _, share := range []float64{.02, .1, .3, .5} {
			for _, rtt := range []time.Duration{80 * time.Millisecond, 300 * time.Millisecond} {
				inQueue(t, func(q *queue, inside serializer.Turn) {
					random := rand.New(rand.NewPCG(1, 1))
					var people sync.WaitGroup
					var lost, honest atomic.Int64
					for i := range max(places*5, 40) {
						n := q.visitOf(&request{client: fmt.Sprint("client", i)})
						n.Line.Capacity, n.Line.Page = places, &Page{hold: 5 * time.Minute}
						n.Rule.Limit = places
						ticket, err := q.join(q.Context(), n, "", true)
						if err != nil {
							t.Fatal(err)
						}
						ticket.locked(ticket.departLocked)
						if random.Float64() < share {
							continue
						}
						honest.Add(1)
						people.Go(func() {
							for !ticket.await(q.Context(), askTime) {
								time.Sleep(rtt)
							}
							time.Sleep(rtt)
							n := q.visitOf(&request{client: fmt.Sprint("client", i)})
							_, err := ticket.claim(n)
							if errors.Is(err, errAway) {
								lost.Add(1)
							} else if n.Part != nil {
								time.Sleep(time.Duration(20+random.IntN(20)) * time.Second)
								n.Part.LeaveAfter()
								n.Part.Leave()
							}
						})
					}
					time.Sleep(10 * time.Second)
					begun := time.Now()
					inside.Leave()
					people.Wait()
					t.Logf("%d places, %.0f %% absent, round trip %v: %d of %d honest lost their places, in %v", places, 100*share, rtt, lost.Load(), honest.Load(), time.Since(begun))
				})
			}
		}
	}
}
