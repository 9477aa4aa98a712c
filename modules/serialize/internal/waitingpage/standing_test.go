package waitingpage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// stream is a waiter whose comments say where it stands.
type stream struct {
	request
	standing Standing
}

func (s *stream) Standing() *Standing { return &s.standing }

// Bug: if the latest reading took long, it counted as young for long. A waiter that had arrived
// after it got comments without its place.
func TestPlaceIsKnownAfterASlowReading(t *testing.T) {
	t.Parallel()
	inQueue(t, func(q *queue, inside serializer.Turn) {
		q.places.read, q.places.cost = time.Now(), time.Second
		for want := 1; want <= 2; want++ {
			waiter := new(stream)
			q.places.Join(serializer.Arrival{Queue: "a", Requester: waiter}, func(turn serializer.Turn, _ error) { turn.Leave() })
			time.Sleep(time.Second)
			if number := q.places.Number(waiter); number != want {
				t.Errorf("the place is %d; expected %d", number, want)
			}
		}
		inside.Leave()
		synctest.Wait() // until all have had their turns
	})
}
