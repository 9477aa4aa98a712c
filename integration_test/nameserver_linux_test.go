package integration_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Beside a silent name server, fifty lines of unique_ids cost what one costs: the host's name
// is looked up once. Bug: each line waited five seconds for it, also where it has no use.
func TestSilentNameServer(t *testing.T) {
	t.Parallel()
	testcaddy.NeedRoot(t, "mount, and answer at port 53")
	server, err := net.ListenPacket("udp4", "127.0.0.53:53")
	if err != nil {
		server, err = net.ListenPacket("udp4", "127.53.53.53:53")
	}
	check(t, err)
	defer server.Close()
	address, _, _ := net.SplitHostPort(server.LocalAddr().String())
	const alone = `hostname a.host.that.nobody.knows && echo "nameserver $0" >"$DIR/resolv.conf" && mount --bind "$DIR/resolv.conf" /etc/resolv.conf && exec "$@"`
	ids := func(options string) setup {
		return setup{
			site:     strings.Repeat("unique_ids {\n"+options+"\n}\n", 50) + "respond {unique_id}",
			launcher: []string{"unshare", "--mount", "--uts", "sh", "-c", alone, address},
		}
	}
	begun := time.Now()
	c := start(t, ids("node auto"))
	if took := time.Since(begun); took > time.Minute { // each look-up takes 5 s, so 50 take 250 s
		t.Errorf("the start took %s", took)
	}
	begun = time.Now()
	check(t, c.reload(ids("layout threaded")))
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the reload took %s", took)
	}
	asked := make([]byte, 512)
	isAsked := func() bool {
		check(t, server.SetReadDeadline(time.Now().Add(10*time.Millisecond))) // what was sent is here
		n, _, err := server.ReadFrom(asked)
		return err == nil && n > 0
	}
	if !isAsked() {
		t.Error("the name server was not asked")
	}
	for isAsked() {
	}
	start(t, ids("node random"))
	start(t, ids("layout modern"))
	if isAsked() {
		t.Errorf("the name server was asked, though the name has no use: %q", asked)
	}
}
