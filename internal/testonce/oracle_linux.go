// Package testonce tests the handler once by an upstream that counts effects by key, with any
// storage and engine.
package testonce

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

var (
	keys     = flag.Int("once.keys", 300, "how many keys the oracle uses")
	requests = flag.Int("once.requests", 1500, "how many requests the oracle sends")
)

// Cluster are three Caddys on one storage and one engine.
type Cluster struct {
	Options string                     // global options, such as the storage
	Line    string                     // the directive once
	Data    string                     // the data directory of all
	Break   func(length time.Duration) // lets the storage fail for a while
}

// oracle is an upstream of the cluster that knows what has happened, and what clients got. Its effects are
// answers that no key may have two of.
type oracle struct {
	*testing.T
	Cluster
	addrs  [3]string
	caddys [3]*testcaddy.Server
	faults map[string]int

	mu      sync.Mutex
	effects map[string][]string // the answers, by key
	refused map[string]int      // answers that say that nothing has happened
	got     map[string]int      // by what the answer was
	slowest time.Duration
}

// Test shows that of the Caddys, which are killed, stopped and reloaded, and whose storage fails
// now and then, none lets a key act twice. Every repetition gets the first answer byte by byte,
// or a refusal with its reason.
func (c Cluster) Test(t *testing.T) {
	o := &oracle{T: t, Cluster: c, faults: make(map[string]int),
		effects: make(map[string][]string), refused: make(map[string]int), got: make(map[string]int)}
	upstream := testcaddy.Serve(t, o)
	o.Line += "\nreverse_proxy " + upstream
	for i := range o.caddys {
		o.addrs[i] = testprocess.FreeAddr(t)
		o.start(i)
	}
	ctx, end := context.WithCancel(t.Context())
	var faults, clients sync.WaitGroup
	faults.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(rand.N(200 * time.Millisecond))
			o.fault(rand.IntN(len(o.caddys)))
		}
	})
	seats := make(chan struct{}, 64)
	for range *requests / 3 { // bursts of one to five
		key := rand.IntN(*keys)
		for range 1 + rand.IntN(5) {
			seats <- struct{}{}
			clients.Go(func() {
				defer func() { <-seats }()
				o.send(rand.IntN(len(o.addrs)), key)
			})
		}
	}
	clients.Wait()
	end()
	faults.Wait()
	for key := range *keys {
		o.send(key%len(o.addrs), key)
	}
	for key, answers := range o.effects {
		if len(answers) > 1 {
			t.Errorf("%s acted %d times", key, len(answers))
		}
	}
	t.Logf("%d keys, of which %d acted; answers: %v; faults: %v; the slowest took %s", *keys, len(o.effects), o.got, o.faults, o.slowest.Round(time.Millisecond))
}

// site is the Caddyfile of a Caddy whose environment has its addresses. A step distinguishes it from others.
func (o *oracle) site(step int) string {
	return fmt.Sprintf("{\nadmin {$ADMIN}\ngrace_period 100ms\n%s\n}\nhttp://{$ADDR} {\nheader X-Step %d\n%s\n}\n", o.Options, step, o.Line)
}

func (o *oracle) start(i int) {
	o.caddys[i] = testcaddy.Launch(o, testcaddy.Settings{Caddyfile: o.site(0), Env: []string{"ADDR=" + o.addrs[i], "XDG_DATA_HOME=" + o.Data}})
	o.caddys[i].AwaitLoaded()
}

// fault does something to a Caddy or to the storage that must not matter.
func (o *oracle) fault(i int) {
	kinds := []string{"kill", "stop", "reload", "storage"}
	kind := kinds[rand.IntN(len(kinds))]
	o.faults[kind]++
	switch kind {
	case "kill":
		o.caddys[i].Kill()
		o.start(i)
	case "stop":
		o.caddys[i].Freeze()
		time.Sleep(rand.N(time.Second))
		o.caddys[i].Thaw()
	case "reload":
		if err := o.caddys[i].Load("text/caddyfile", o.site(o.faults[kind])); err != nil {
			o.Error(err)
		}
	case "storage":
		o.Break(rand.N(50 * time.Millisecond))
	}
}

func (o *oracle) locked(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// ServeHTTP does what the key says: it acts at once or slowly, breaks off after it has acted, or
// refuses at first.
func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil {
		return
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(key, "key-"))
	answer := fmt.Sprintf("%s %s %d %s", key, body, rand.Uint64(), strings.Repeat("x", n%7*3000))
	acts := true
	o.locked(func() {
		if acts = n%10 != 1 || o.refused[key] == 2; acts {
			o.effects[key] = append(o.effects[key], answer)
		} else {
			o.refused[key]++
		}
	})
	if !acts {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	switch n % 10 {
	case 2, 3:
		time.Sleep(rand.N(300 * time.Millisecond))
	case 4:
		panic(http.ErrAbortHandler)
	case 5:
		time.Sleep(rand.N(2 * time.Second))
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// send sends one request to a Caddy, perhaps hangs up, and judges the answer.
func (o *oracle) send(to, n int) {
	ctx, cancel := context.WithCancel(o.Context())
	defer cancel()
	if rand.IntN(5) == 0 {
		defer time.AfterFunc(rand.N(200*time.Millisecond), cancel).Stop()
	}
	key := fmt.Sprintf("key-%d", n)
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.addrs[to], strings.NewReader("body of "+key))
	r.Header.Set("Idempotency-Key", key)
	begun := time.Now()
	a := testcaddy.Do(client, r)
	took := time.Since(begun)
	o.locked(func() {
		o.got[o.judge(key, a)]++
		o.slowest = max(o.slowest, took)
	})
}

// judge says what kind of answer a client got.
func (o *oracle) judge(key string, a testcaddy.Answer) (kind string) {
	kind = strconv.Itoa(a.StatusCode)
	reason := a.Header.Get("Orderly-Once")
	switch {
	case a.Err != nil:
		return "lost"
	case reason != "":
		if want := map[string]int{"running": 409, "unknown": 409, "not_kept": 409, "storage": 503}[reason]; a.StatusCode != want {
			o.Errorf("%s: %v", key, a)
		}
		return kind + " " + reason
	case a.StatusCode == http.StatusCreated:
		if len(o.effects[key]) != 1 || o.effects[key][0] != a.Text {
			o.Errorf("%s: answered with %.60q; what has happened is %.60q", key, a.Text, o.effects[key])
		}
		if a.Header.Get("Idempotent-Replayed") != "" {
			return kind + " again"
		}
	case a.StatusCode != http.StatusTooManyRequests && a.StatusCode != http.StatusBadGateway && a.StatusCode != http.StatusGatewayTimeout:
		o.Errorf("%s: %v", key, a)
	}
	return kind
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
