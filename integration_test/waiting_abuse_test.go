//go:build unix

package integration_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Bug: three browsers made 11 requests a second, and 1.6 beside one client without cookies
// that asked for the page once a second: the turn of each of its places waited for it.
func TestWaitingBesideOneWithoutCookies(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) }))
	defer upstream.Close()
	c := start(t, setup{site: strings.Replace(waitingSite("after 0", ""), "{$UPSTREAM}", upstream.Listener.Addr().String(), 1)})
	var served atomic.Int32
	stop := make(chan struct{})
	var browsers sync.WaitGroup
	for range 3 {
		browsers.Go(func() {
			for b := newVisitor(c); ; {
				select {
				case <-stop:
					return
				default:
				}
				if b.visit("mine").StatusCode == http.StatusOK {
					served.Add(1)
					continue
				}
				for strings.Contains(b.visit("mine", "Orderly-Place", "ask").Text, "number") {
				}
			}
		})
	}
	defer browsers.Wait()
	defer close(stop)
	wait.Until(t, "the browsers are served", func() bool { return served.Load() > 5 })
	// measure is how many turns a second the browsers have, beside so many requests a second.
	measure := func(rate time.Duration) float64 {
		const length = 3 * time.Second
		before, begun := served.Load(), time.Now()
		for i := range rate * length / time.Second {
			time.Sleep(time.Until(begun.Add(i * time.Second / rate)))
			inBackground(func() testcaddy.Answer { return newVisitor(c).visit("another") })
		}
		time.Sleep(time.Until(begun.Add(length)))
		return float64(served.Load()-before) / time.Since(begun).Seconds()
	}
	alone := measure(0)
	for _, rate := range []time.Duration{1, 5, 20} {
		turns := measure(rate)
		t.Logf("%.1f turns a second alone, %.1f beside %d requests a second", alone, turns, rate)
		if turns < alone*2/3 {
			t.Errorf("%.1f turns a second beside %d requests a second; expected two thirds of %.1f", turns, rate, alone)
		}
	}
}
