// Package testonce tests the handler once by an upstream that counts effects by key, with any
// storage and engine.
package testonce

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

var (
	keys     = flag.Int("once.keys", 300, "how many keys the oracle uses")
	requests = flag.Int("once.requests", 1500, "how many requests the oracle sends")
)

// oracle is an upstream that knows what has happened. Its effects are answers that no key may
// have two of.
type oracle struct {
	mu      sync.Mutex
	effects map[string][]string // the answers, by key
	refused map[string]int      // answers that say that nothing has happened
}

// ServeHTTP does what the key says: it acts at once or slowly, breaks off after it has acted, or
// refuses at first.
func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil {
		return
	}
	n, _ := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	answer := fmt.Sprintf("%s %s %d %s", key, body, rand.Uint64(), strings.Repeat("x", n%7*3000))
	o.mu.Lock()
	if n%10 == 1 && o.refused[key] < 2 {
		o.refused[key]++
		o.mu.Unlock()
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	o.effects[key] = append(o.effects[key], answer)
	o.mu.Unlock()
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

// Cluster are three Caddys on one storage and one engine.
type Cluster struct {
	Options string                     // global options, such as the storage
	Line    string                     // the directive once
	Break   func(length time.Duration) // lets the storage fail for a while
	Stop    time.Duration              // the longest time for which a process is stopped

	t       *testing.T
	shared  string // their data directory
	addrs   [3]string
	caddys  [3]*testcaddy.Server
	site    string // the Caddyfile, with {$ADDR} and {$STEP}
	reloads int
	faults  map[string]int
}

func (c *Cluster) begin(t *testing.T, upstream string) {
	c.t, c.shared, c.faults = t, testcaddy.TempDir(t), make(map[string]int)
	if c.Break == nil {
		c.Break = c.breakFiles
	}
	c.site = "{\nadmin {$ADMIN}\ngrace_period 100ms\n" + c.Options + "\n}\nhttp://{$ADDR} {\n" + c.Line + "\nheader X-Step {$STEP:0}\nreverse_proxy " + upstream + "\n}\n"
	for i := range c.caddys {
		c.addrs[i] = testprocess.FreeAddr(t)
		c.start(i)
	}
}

func (c *Cluster) start(i int) {
	c.caddys[i] = testcaddy.Launch(c.t, testcaddy.Settings{Caddyfile: c.site, Env: []string{"ADDR=" + c.addrs[i], "XDG_DATA_HOME=" + c.shared}})
	c.caddys[i].AwaitLoaded()
}

// fault does something that must not matter.
func (c *Cluster) fault() {
	i := rand.IntN(len(c.caddys))
	kinds := []string{"kill", "stop", "reload", "storage"}
	kind := kinds[rand.IntN(len(kinds))]
	c.faults[kind]++
	switch kind {
	case "kill":
		c.caddys[i].Kill()
		c.start(i)
	case "stop":
		c.caddys[i].Signal(syscall.SIGSTOP)
		time.Sleep(rand.N(c.Stop))
		c.caddys[i].Signal(syscall.SIGCONT)
	case "reload":
		c.reloads++
		fill := strings.NewReplacer("{$ADDR}", c.addrs[i], "{$STEP:0}", strconv.Itoa(c.reloads), "{$ADMIN}", c.caddys[i].Admin)
		if err := c.caddys[i].Load("text/caddyfile", fill.Replace(c.site)); err != nil {
			c.t.Error(err)
		}
	case "storage":
		c.Break(rand.N(50 * time.Millisecond))
	}
}

// breakFiles puts a file in the place of the folder of all records for a while, in one step.
func (c *Cluster) breakFiles(length time.Duration) {
	folder := filepath.Join(c.shared, "caddy", "orderly")
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, folder+".away", unix.RENAME_EXCHANGE)
	}
	if err := os.WriteFile(folder+".away", nil, 0o600); err != nil || exchange() != nil {
		return // there is none yet
	}
	time.Sleep(length)
	if err := exchange(); err != nil {
		c.t.Error(err)
	}
	_ = os.Remove(folder + ".away")
}

// tally is what clients got.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
	slowest time.Duration
}

// Test shows that of the Caddys, which are killed, stopped and reloaded, and whose storage fails
// now and then, none lets a key act twice. Every repetition gets the first answer byte by byte,
// or a refusal with its reason.
func (c *Cluster) Test(t *testing.T) {
	o := &oracle{effects: make(map[string][]string), refused: make(map[string]int)}
	c.begin(t, testcaddy.Serve(t, o))
	done := make(chan struct{})
	var faults, clients sync.WaitGroup
	faults.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(rand.N(200 * time.Millisecond)):
				c.fault()
			}
		}
	})
	got := &tally{answers: make(map[string]int)}
	seats := make(chan struct{}, 64)
	for range *requests / 3 { // bursts of one to five
		key := fmt.Sprintf("key-%d", rand.IntN(*keys))
		for range 1 + rand.IntN(5) {
			seats <- struct{}{}
			clients.Go(func() {
				defer func() { <-seats }()
				o.send(t, got, "http://"+c.addrs[rand.IntN(len(c.addrs))], key)
			})
		}
	}
	clients.Wait()
	close(done)
	faults.Wait()
	for i := range *keys {
		o.send(t, got, "http://"+c.addrs[i%len(c.addrs)], fmt.Sprintf("key-%d", i))
	}
	total, acted := 0, 0
	for _, n := range got.answers {
		total += n
	}
	for key, answers := range o.effects {
		if acted++; len(answers) > 1 {
			t.Errorf("%s acted %d times", key, len(answers))
		}
	}
	t.Logf("%d requests by %d keys, of which %d acted; answers: %v; faults: %v; the slowest took %s",
		total, *keys, acted, maps.Clone(got.answers), c.faults, got.slowest.Round(time.Millisecond))
}

// send sends one request, perhaps hangs up, and judges the answer.
func (o *oracle) send(t *testing.T, got *tally, url, key string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rand.IntN(5) == 0 {
		defer time.AfterFunc(rand.N(200*time.Millisecond), cancel).Stop()
	}
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body of "+key))
	r.Header.Set("Idempotency-Key", key)
	begun := time.Now()
	a := testcaddy.Do(client, r)
	took := time.Since(begun)
	kind := strconv.Itoa(a.StatusCode)
	reason := a.Header.Get("Orderly-Once")
	switch {
	case a.Err != nil:
		kind = "lost"
	case reason != "":
		kind += " " + reason
		if want := map[string]int{"running": 409, "unknown": 409, "not_kept": 409, "storage": 503}[reason]; a.StatusCode != want {
			t.Errorf("%s: %v", key, a)
		}
	case a.StatusCode == http.StatusCreated:
		if a.Header.Get("Idempotent-Replayed") != "" {
			kind += " again"
		}
		o.mu.Lock()
		if len(o.effects[key]) != 1 || o.effects[key][0] != a.Text {
			t.Errorf("%s: answered with %.60q; what has happened is %.60q", key, a.Text, o.effects[key])
		}
		o.mu.Unlock()
	case a.StatusCode == http.StatusTooManyRequests, a.StatusCode == http.StatusBadGateway, a.StatusCode == http.StatusGatewayTimeout:
	default:
		t.Errorf("%s: %v", key, a)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	got.answers[kind]++
	got.slowest = max(got.slowest, took)
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
