package testcaddy

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Engine is an engine whose queues several Caddys share by a server.
type Engine struct {
	Options string     // its name and its block; {$TTL} is the time to live
	Path    string     // of its queues, in lists
	Start   func()     // starts the server, which nobody has used before
	Claims  func() int // how many Caddys have a claim on the queues; nil if nobody knows
}

const engineTTL = 3 * time.Second

// site is a Caddyfile whose site has a queue in front of a handler.
func (e Engine) site(addr, timeout, handler string) string {
	options := strings.ReplaceAll(e.Options, "{$TTL}", engineTTL.String())
	return "{\nadmin {$ADMIN}\n}\nhttp://" + addr + " {\nserialize {\ntimeout " + timeout + "\nengine " + options + "\n}\n" + handler + "\n}\n"
}

func (e Engine) wantClaims(t *testing.T, want int) {
	t.Helper()
	if e.Claims != nil {
		wait.Until(t, strconv.Itoa(want)+" Caddys have a claim", func() bool { return e.Claims() == want })
	}
}

// TestEngine tests what all engines of servers promise. It makes an engine for each test.
func TestEngine(t *testing.T, engine func(t *testing.T) Engine) {
	t.Run("the server comes later", func(t *testing.T) { t.Parallel(); testServerComesLater(t, engine(t)) })
	t.Run("a Caddy is killed", func(t *testing.T) { t.Parallel(); testCaddyIsKilled(t, engine(t)) })
}

// Without its server, Caddy loads its configuration, and refuses requests with 503. It serves
// once the server can be reached. Several Caddys share the queue. A reload keeps their claims,
// and their end gives them back.
func testServerComesLater(t *testing.T, e Engine) {
	const token = "respond {http.serialize.token}"
	addrs := []string{ReserveAddr(t), ReserveAddr(t)}
	var caddys []*Server
	for _, addr := range addrs {
		caddys = append(caddys, Start(t, e.site(addr, "20s", token)))
	}
	if a := Get(t, "http://"+addrs[0]); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without its server: %s %s", a.Status, a.Text)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(caddys[0].Log.String()), "\n") {
		if !json.Valid([]byte(line)) { // bug: a library wrote raw lines past Caddy's log
			t.Errorf("not an entry of Caddy's log: %s", line)
		}
	}
	e.Start()
	var last uint64
	ask := func(addr string) bool {
		a := Get(t, "http://"+addr)
		n, err := strconv.ParseUint(a.Text, 10, 64)
		if a.StatusCode != http.StatusOK {
			return false
		}
		if err != nil || n <= last {
			t.Errorf("token %q after %d", a.Text, last)
		}
		last = n
		return true
	}
	for _, i := range []int{0, 1, 0} {
		wait.Until(t, "the Caddy serves", func() bool { return ask(addrs[i]) })
	}
	e.wantClaims(t, 2)
	if err := caddys[0].Load("text/caddyfile", e.site(addrs[0], "21s", token)); err != nil {
		t.Fatal(err)
	}
	AwaitOneListener(t, addrs[0])
	if !ask(addrs[0]) {
		t.Error("refused after a reload")
	}
	if n := strings.Count(caddys[0].Log.String(), `"began a session in `); n != 1 {
		t.Errorf("%d sessions were begun, with one reload", n)
	}
	for _, caddy := range caddys {
		caddy.Signal(os.Interrupt)
		caddy.AwaitEnd()
	}
	e.wantClaims(t, 0)
}

// A Caddy that is killed with a request inside leaves the queue to the other one, which lists
// the tickets of both.
func testCaddyIsKilled(t *testing.T, e Engine) {
	e.Start()
	upstream := NewGatedUpstream(t)
	var caddys []*Server
	var answers []<-chan Answer
	for i := range 2 {
		addr := ReserveAddr(t)
		caddys = append(caddys, Start(t, e.site(addr, "20s", "reverse_proxy "+upstream.Addr)))
		answers = append(answers, Send(t, http.MethodGet, "http://"+addr, ""))
		if i == 0 {
			upstream.Next()
		}
	}
	wait.Until(t, "both tickets are listed", func() bool {
		var queues []struct {
			Path    string
			Tickets []any
		}
		text := caddys[1].Ask("/serialize/queues")
		return json.Unmarshal([]byte(text), &queues) == nil && len(queues) == 1 && queues[0].Path == e.Path && len(queues[0].Tickets) == 2
	})
	killed := time.Now()
	caddys[0].Kill()
	upstream.Next().Leave()
	if took := time.Since(killed); took > engineTTL+2*time.Second {
		t.Errorf("the next request was at the upstream after %s", took)
	}
	Await(t, answers[1]).Want(t, http.StatusOK)
}
