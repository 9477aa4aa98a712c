//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The upstream learns its queue, how many were ahead, how long it waited, and a
// token that grows.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	const wait = 100 * time.Millisecond
	c := start(t, setup{site: `
		serialize {
			path {$DIR}
			prefix q_{query.queue}_
		}
		reverse_proxy {$UPSTREAM} {
			header_up X-Queue {http.serialize.queue}
			header_up X-Position {http.serialize.position}
			header_up X-Wait {http.serialize.wait_ms}
			header_up X-Token {http.serialize.token}
			header_up X-Reason "none {http.serialize.reason}"
		}`})
	answers := []<-chan testcaddy.Answer{c.getting("/?queue=one&name=0&gate")}
	c.AwaitEntry("0")
	ticket := lockFiles(t, c.dir)[0]
	if token := c.Visit("0").Header.Get("X-Token"); !strings.HasPrefix(ticket, "q_one_0000"+token) {
		t.Errorf("token %s, but the lock file is %s", token, ticket)
	}
	for i := 1; i < 4; i++ {
		answers = append(answers, c.getting(fmt.Sprintf("/?queue=one&name=%d", i)))
		c.awaitTickets(i + 1)
	}
	time.Sleep(wait)
	c.Open("0")
	for _, answer := range answers {
		(<-answer).Want(t, http.StatusOK)
	}
	milliseconds := regexp.MustCompile(`^[0-9]+\.[0-9]{3}$`)
	for i := range 4 {
		header := c.Visit(fmt.Sprint(i)).Header
		if header.Get("X-Queue") != "q_one_" || header.Get("X-Position") != fmt.Sprint(i) {
			t.Errorf("request %d: queue %q, position %q", i, header.Get("X-Queue"), header.Get("X-Position"))
		}
		waited, err := strconv.ParseFloat(header.Get("X-Wait"), 64)
		if err != nil || !milliseconds.MatchString(header.Get("X-Wait")) {
			t.Errorf("request %d: wait_ms %q", i, header.Get("X-Wait"))
		}
		if i > 0 && waited < float64(wait.Milliseconds()) {
			t.Errorf("request %d: waited %v ms, want %v at least", i, waited, wait)
		}
		// Bug: it was passed on as it is written here, with its braces.
		if reason := strings.TrimSpace(header.Get("X-Reason")); reason != "none" {
			t.Errorf("request %d: reason %q", i, reason)
		}
	}
	c.WantTokensGrow()
}
