package integration_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Caddy's packaged unit has PrivateTmp=true: its temporary directory is not the shell's.
// Bug: the command read the shell's, and said that nobody waits.
func TestCommandsSeePrivateTmp(t *testing.T) {
	t.Parallel()
	testcaddy.NeedRoot(t, "mount")
	tmp := testcaddy.TempDir(t)
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{
		upstream: upstream,
		site:     "serialize {\npath {$TMPDIR}\n}\nreverse_proxy {$UPSTREAM}",
		env:      map[string]string{"TMPDIR": tmp},
		launcher: []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs private "$TMPDIR" && exec "$0" "$@"`},
	})
	first := c.getting("/?name=first&gate")
	upstream.AwaitEntry("first")
	second := c.getting("/?name=second")
	wait.Until(t, "both are in the queue", func() bool { return strings.Count(c.Ask("/serialize/queues"), `"token"`) == 2 })

	if names := fileNames(t, tmp); len(names) != 0 {
		t.Fatalf("the temporary directory is not private: %q", names)
	}
	list := c.serialize("queues", "--json", "--address", c.Admin)
	var queues []struct {
		Path, Prefix    string
		Inside, Waiting int
		Tickets         []struct{ Token string }
	}
	check(t, json.Unmarshal(list, &queues))
	if len(queues) != 1 || queues[0].Inside != 1 || queues[0].Waiting != 1 || queues[0].Path != tmp {
		t.Fatalf("the command lists %s", list)
	}
	c.serialize("evict", "--prefix", "serializer_", "--address", c.Admin, queues[0].Tickets[1].Token)
	(<-second).Want(t, http.StatusServiceUnavailable)
	upstream.Open("first")
	(<-first).Want(t, http.StatusOK)
}

// serialize runs a command of serialize, outside of the server's namespace.
func (c *caddy) serialize(args ...string) []byte {
	c.t.Helper()
	cmd := testcaddy.CommandIn(c.t, c.home, append([]string{"serialize"}, args...)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+c.setup.env["TMPDIR"])
	out, errs, code := testcaddy.OutputOf(c.t, cmd)
	if code != 0 {
		c.t.Fatalf("caddy serialize %v: exit code %d: %s%s", args, code, out, errs)
	}
	return []byte(out)
}
