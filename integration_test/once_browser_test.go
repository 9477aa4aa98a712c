//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// A form that is clicked twice and then reloaded makes one order, and shows it each time. The
// second click ends the connection of the first one.
func TestOnceInBrowser(t *testing.T) {
	t.Parallel()
	b := openPage(t)
	var orders, pages atomic.Int64
	gate := make(chan struct{})
	shop := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `<form method=post action="/buy?key=page-%d"><input name=item value=tea><button>Buy</button></form>`, pages.Add(1))
			return
		}
		n := orders.Add(1)
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "order %d: %s", n, r.FormValue("item"))
	})
	c := start(t, setup{site: "once /buy {\npath {$DIR}\nkey {http.request.uri.query.key}\nscope none\n}\nreverse_proxy " + testcaddy.Serve(t, shop)})
	b.open(c.url + "/")
	b.run("{ const click = () => document.querySelector('button').click(); setTimeout(click, 500); click(); true }", nil)
	wait.Until(t, "the shop has the order", func() bool { return orders.Load() == 1 })
	wait.Until(t, "a repetition waits", func() bool {
		queues := c.queues()
		return len(queues) == 1 && queues[0].Inside == 1 && queues[0].Waiting == 1
	})
	close(gate)
	b.until("document.body.innerText === 'order 1: tea'")
	b.run("window.before = true", nil)
	b.call("Page.reload", nil, nil)
	b.until("!window.before && document.body.innerText === 'order 1: tea'")
	if n := orders.Load(); n != 1 {
		t.Errorf("%d orders", n)
	}
}
