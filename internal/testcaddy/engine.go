package testcaddy

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// TestEngine tests what all engines of servers promise. engine is the name and the block of one, and start
// starts its server. Without its server, Caddy loads its configuration, and refuses requests with 503. It
// serves once the server can be reached. Its ttl is 3s. Three Caddys share the queue and its pace. A reload keeps the claim on it.
func TestEngine(t *testing.T, engine string, start func()) {
	t.Helper()
	const held = 300 * time.Millisecond
	site := func(addr, timeout string) string {
		return "{\nadmin {$ADMIN}\n}\nhttp://" + addr + " {\nserialize {\nhold_at_least 300ms\ntimeout " + timeout + "\nengine " + engine + "\n}\nrespond {http.serialize.token}\n}\n"
	}
	addrs := []string{testprocess.FreeAddr(t), testprocess.FreeAddr(t), testprocess.FreeAddr(t)}
	var caddys []*Server
	for _, addr := range addrs {
		caddys = append(caddys, Start(t, site(addr, "20s")))
	}
	Get(t, "http://"+addrs[0]).Want(t, http.StatusServiceUnavailable)
	for line := range strings.SplitSeq(strings.TrimSpace(caddys[0].Log.String()), "\n") {
		if !json.Valid([]byte(line)) { // bug: a library wrote raw lines past Caddy's log
			t.Errorf("not an entry of Caddy's log: %s", line)
		}
	}
	start()
	var last uint64
	ask := func(addr string) bool {
		a := Get(t, "http://"+addr)
		if a.StatusCode != http.StatusOK {
			return false
		}
		n, err := strconv.ParseUint(a.Text, 10, 64)
		if err != nil || n <= last {
			t.Errorf("token %q after %d", a.Text, last)
		}
		last = n
		return true
	}
	for _, i := range []int{0, 1, 2, 0} {
		wait.Until(t, "the Caddy serves", func() bool { return ask(addrs[i]) })
	}
	first := time.Now()
	for _, addr := range addrs {
		if !ask(addr) {
			t.Error("refused")
		}
	}
	if passed := time.Since(first); passed < 2*held {
		t.Errorf("three entered within %v, though each turn lasts for %v", passed, held)
	}
	if err := caddys[0].Load("text/caddyfile", site(addrs[0], "21s")); err != nil {
		t.Fatal(err)
	}
	AwaitOneListener(t, addrs[0])
	if !ask(addrs[0]) {
		t.Error("refused after a reload")
	}
	begun := caddys[0].Log.All(func(e testprocess.Entry) bool {
		return strings.HasPrefix(e.Text("msg"), "began a session in ") && e["ttl"] == 3.0
	})
	if len(begun) != 1 {
		t.Errorf("%d sessions of 3 s were begun, with one reload", len(begun))
	}
	for _, caddy := range caddys {
		caddy.End(os.Interrupt)
		if caddy.Err != nil {
			t.Error(caddy.Err)
		}
	}
}
