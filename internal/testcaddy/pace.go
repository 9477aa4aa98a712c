package testcaddy

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Pace is how many requests may enter a queue in a time, by `hold_at_least`.
type Pace struct {
	Limit  int
	Within time.Duration
}

// Want sends requests to Caddys of one queue, all at once, and fails the test if more of them
// enter in a time than may. The moments are those of the Caddys' logs, which need the global
// option debug. The entry is written before a turn is counted from, so it is early, never late.
func (p Pace) Want(t testing.TB, requests int, caddys map[string]*Server) {
	t.Helper()
	var answers []<-chan Answer
	for range requests {
		for url := range caddys {
			answers = append(answers, Send(t, http.MethodGet, url, ""))
		}
	}
	for _, answer := range answers {
		Await(t, answer).Want(t, http.StatusOK)
	}
	var entered []float64 // seconds
	wait.Until(t, "the logs have all requests", func() bool {
		entered = nil
		for _, caddy := range caddys {
			for _, e := range caddy.Log.Entries("entered") {
				at, _ := e["ts"].(float64)
				entered = append(entered, at)
			}
		}
		return len(entered) == len(answers)
	})
	slices.Sort(entered)
	least := time.Hour
	for i := range entered[p.Limit:] {
		least = min(least, time.Duration((entered[i+p.Limit]-entered[i])*float64(time.Second)))
	}
	t.Logf("%d requests entered %v after the first of them or later, by %d processes; expected %v", p.Limit+1, least, len(caddys), p.Within)
	if least < p.Within-time.Microsecond { // the precision of the log
		t.Errorf("%d requests entered within %v; expected at most %d within %v", p.Limit+1, least, p.Limit, p.Within)
	}
}
