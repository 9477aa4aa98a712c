package integration_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// With two inside and two waiting, five must leave through two places before a sixth can.
// So Retry-After is two and a half times the age of the holds, although none has ended
// yet, and grows with them.
func TestRetryAfterGrowsWithHolds(t *testing.T) {
	t.Parallel()
	s := newSite(t, "concurrency 2\nqueue_length 2")
	started := time.Now()
	var answers []<-chan testcaddy.Answer
	for i := range 4 {
		answers = append(answers, s.send(t, "GET", fmt.Sprint(i)))
		s.awaitTickets(t, i+1)
	}
	visitors := s.together(t, "0", "1")
	entered := time.Now() // or before
	wait.Eventually(t, "Retry-After grows", func() error {
		least := 2.5 * max(1, time.Since(entered).Seconds())
		text := testcaddy.Get(t, s.url+"more").Header.Get("Retry-After")
		most := math.Ceil(2.5 * max(1, time.Since(started).Seconds()))
		got, err := strconv.Atoi(text)
		if err != nil || float64(got) < least || float64(got) > most {
			t.Fatalf("Retry-After is %q; expected %.1f to %.0f", text, least, most)
		}
		if got < 5 {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
	for _, v := range visitors {
		v.Leave()
	}
	s.Next().Leave()
	s.Next().Leave()
	for _, answer := range answers {
		testcaddy.Await(t, answer)
	}
}
