package recipes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

// A request that comes twice reaches the application once, as the recipes of the page say.
func TestOnceRecipes(t *testing.T) {
	for _, c := range []struct {
		heading, path string
		bodies        [2]string
		header        []string
		refused       []string // instead of that header
		status        int
	}{
		{"An interface", "orders", [2]string{"tea", "tea"}, append(as("anna"), "Idempotency-Key", `"7f3a90c2"`), as("anna"), 400},
		{"A form", "buy?key=7f3a90c2", [2]string{"item=tea", "item=tea"}, []string{"Cookie", "session=a"}, nil, 400},
		{"Uploads", "upload?key=7f3a90c2", [2]string{"--one", "--two"}, nil, nil, 0},
	} {
		t.Run(c.heading, func(t *testing.T) {
			k := cookText(t, blocks(t, "once.md", c.heading, "caddyfile")[0])
			var answers []<-chan testcaddy.Answer
			for _, body := range c.bodies {
				answers = append(answers, testcaddy.Send(t, http.MethodPost, k.url+c.path, body, c.header...))
			}
			name, _, _ := strings.Cut(c.path, "?")
			k.awaitTickets(t, "orderly_once_", 2)
			k.Next(name).Leave()
			replayed := 0
			for _, answer := range answers {
				if want(t, answer, 200, "served "+name).Header.Get("Idempotent-Replayed") == "true" {
					replayed++
				}
			}
			if replayed != 1 || len(k.Order()) != 1 {
				t.Errorf("%d repetitions; the application had %q", replayed, k.Order())
			}
			if c.status != 0 {
				want(t, testcaddy.Send(t, http.MethodPost, k.url+c.path, c.bodies[0], c.refused...), c.status, "")
			}
		})
	}
}

// pay makes one payment by Stripe's client, which gives up soon, and tries again.
const pay = `
const [, , library, host, port] = process.argv
const Stripe = require(library)
const stripe = new Stripe('sk_test_a', {host, port, protocol: 'http', timeout: 500, maxNetworkRetries: 3, telemetry: false})
stripe.paymentIntents.create({amount: 100, currency: 'eur'}).then(
	p => ({id: p.id}),
	e => ({status: e.statusCode, type: e.type, reason: e.headers && e.headers['orderly-once']})
).then(result => console.log(JSON.stringify(result)))
`

// Stripe's client tries again with one key. It gets the first answer, or an error that it reports.
// Bug: it took a refusal for a success, since its body had no error.
func TestStripeClient(t *testing.T) {
	module := testcaddy.NeedModule(t, "stripe", "cjs/stripe.cjs.node.js")
	script := filepath.Join(t.TempDir(), "pay.js")
	testcaddy.WriteFile(t, script, pay)
	for name, c := range map[string]struct {
		do   func(w http.ResponseWriter)
		want string
	}{
		"a slow answer": {func(http.ResponseWriter) { time.Sleep(time.Second) }, `{"id":"pi_1"}`},
		"a broken one":  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, `{"status":409,"type":"StripeAPIError","reason":"unknown"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var payments, requests atomic.Int64
			stripe := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := payments.Add(1)
				c.do(w)
				_ = json.NewEncoder(w).Encode(map[string]string{"id": fmt.Sprintf("pi_%d", n), "object": "payment_intent"})
			}))
			addr := testprocess.FreeAddr(t)
			testcaddy.Start(t, "http://"+addr+" {\nonce {\nscope {http.request.header.Authorization}\n}\nreverse_proxy "+stripe+"\n}")
			counted := testcaddy.Serve(t, count(&requests, addr))
			host, port, _ := strings.Cut(counted, ":")
			p := testprocess.Start(t, exec.CommandContext(t.Context(), "node", script, module, host, port))
			p.AwaitEnd()
			if got := strings.TrimSpace(p.Log.String()); got != c.want || payments.Load() != 1 || requests.Load() < 2 {
				t.Errorf("%d requests, %d payments: %s", requests.Load(), payments.Load(), got)
			}
		})
	}
}

// count passes requests on to a server.
func count(requests *atomic.Int64, to string) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, r)
	})
}
