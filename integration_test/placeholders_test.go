//go:build unix

package integration_test

import (
	"fmt"
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
	const waited = 100 * time.Millisecond
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
	token, ticket := c.AwaitEntry("0").Header.Get("X-Token"), lockFiles(t, c.dir)[0]
	if !strings.HasPrefix(ticket, "q_one_0000"+token) {
		t.Errorf("token %s, but the lock file is %s", token, ticket)
	}
	for i := 1; i < 4; i++ {
		answers = append(answers, c.waiter(fmt.Sprint(i, "&queue=one"), i+1))
	}
	time.Sleep(waited)
	c.Open("0")
	c.wantServed(answers...)
	for i := range 4 {
		header := c.Hit(fmt.Sprint(i)).Header
		// Bug: the reason was passed on as it is written here, with its braces.
		if header.Get("X-Queue") != "q_one_" || header.Get("X-Position") != fmt.Sprint(i) || strings.TrimSpace(header.Get("X-Reason")) != "none" {
			t.Errorf("request %d: %v", i, header)
		}
		text := header.Get("X-Wait")
		got, err := strconv.ParseFloat(text, 64)
		if err != nil || !regexp.MustCompile(`^[0-9]+\.[0-9]{3}$`).MatchString(text) || i > 0 && got < float64(waited.Milliseconds()) {
			t.Errorf("request %d: waited %q ms, want %v at least", i, text, waited)
		}
	}
	c.WantTokensGrow()
}

// A refused request has the number of its ticket, if it had one. Bug: its placeholder
// appeared as it is written.
func TestTokenOfRefused(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: behindQueue("queue_length 1\ntimeout 2s") + "\nhandle_errors {\nrespond [{http.serialize.token}]\n}"})
	c.getting("/?name=holder&gate")
	c.AwaitEntry("holder")
	waiter := c.getting("/")
	c.awaitQueue("serializer_", 1, 1)
	token := c.queue("serializer_").Tickets[1].Token
	if got := c.get("/").Want(t, 503).Text; got != "[]" {
		t.Errorf("the queue is full, and the token is %s", got)
	}
	if got := (<-waiter).Want(t, 503).Text; got != "["+token+"]" {
		t.Errorf("the token is %s; expected %s", got, token)
	}
}
