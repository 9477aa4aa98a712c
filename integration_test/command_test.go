//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// command runs a command of serialize for the process.
func (c *caddy) command(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	return testcaddy.Output(c.t, slices.Concat([]string{"serialize"}, args, []string{"--address", c.Admin})...)
}

// wantCommand runs a command that must end with a code, and say something.
func (c *caddy) wantCommand(code int, says string, args ...string) (stdout string) {
	c.t.Helper()
	stdout, stderr, got := c.command(args...)
	if got != code || !strings.Contains(stdout+stderr, says) {
		c.t.Errorf("caddy serialize %v: exit code %d: %s%s; expected %d and %q", args, got, stdout, stderr, code, says)
	}
	return stdout
}

func (c *caddy) wantEvict(code int, says, token string, more ...string) {
	c.t.Helper()
	c.wantCommand(code, says, append([]string{"evict", "--prefix", "a_", token}, more...)...)
}

// listed is what the command queues prints as JSON.
func (c *caddy) listed(args ...string) (queues []serializer.QueueState) {
	c.t.Helper()
	out := c.wantCommand(0, "[", append([]string{"queues", "--json"}, args...)...)
	decodeInto(c.t, out, &queues)
	return queues
}

// Bug: of a server that answers, the command showed that the owners of all tickets are
// alive. A file of another program has no owner. The requests of another process are not
// shown, and a request without unique_ids has no txid.
func TestCommandShowsWhoIsAlive(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "prefix a_")
	c.holder(t)
	c.another().waiter("waiter", 2)
	number := uint64(time.Now().UnixMicro())
	for _, prefix := range []string{"a_", "b_"} {
		testcaddy.WriteFile(t, filepath.Join(c.dir, lockfile.Name{Prefix: prefix, Number: number}.String()), "")
	}
	wait.Until(t, "the queue has all tickets", func() bool { return len(c.queue("a_").Tickets) == 3 })
	var alive []string
	tickets := c.listed()[0].Tickets
	for _, ticket := range tickets {
		text := "?"
		if ticket.Alive != nil {
			text = fmt.Sprint(*ticket.Alive)
		}
		alive = append(alive, text)
	}
	// Bug: a request of theirs was said to be cancelled.
	c.wantCommand(3, "removes the file of another program, which works on", "evict", "--prefix", "b_", tickets[2].Token)
	c.wantEvict(0, "its file was removed; the program that made it may still be at work", tickets[2].Token)
	if want := []string{"true", "true", "false"}; !slices.Equal(alive, want) {
		t.Errorf("alive are %v; expected %v", alive, want)
	}
	if r := tickets[0].Request; r == nil || r.Path != "/" || r.TXID != "" || r.ClientIP != "127.0.0.1" {
		t.Errorf("this process's ticket is for %+v", r)
	}
	if r := tickets[1].Request; r != nil || !tickets[1].Entered.IsZero() {
		t.Errorf("the other process's ticket is for %+v", r)
	}
}

// With one prefix in two directories, --path says which is meant. A prefix that ends in *
// means all that begin so.
//
// Bug: with the real path of a directory that is configured by a symbolic link, "pause
// --wait" paused the queue, but could not find it: it said that the pause had ended. "queues"
// listed nothing.
func TestCommandChoosesQueues(t *testing.T) {
	t.Parallel()
	real, link := testcaddy.TempDir(t), filepath.Join(testcaddy.TempDir(t), "link")
	check(t, os.Symlink(real, link))
	dirs, site := []string{link, testcaddy.TempDir(t)}, ""
	for i, dir := range dirs {
		for _, prefix := range []string{"shop_", "shop_x_", "other_"} {
			site += fmt.Sprintf("handle /%d/%s {\nserialize {\npath %s\nprefix %s\n}\nrespond ok\n}\n", i, prefix, dir, prefix)
		}
	}
	c := start(t, setup{site: site})
	// Bug: of a queue that does not exist, the command said that nobody was in a queue.
	for _, none := range [][]string{{"--prefix", "shop"}, {"--path", "/nowhere"}, {"--path", dirs[0], "--prefix", "none_*"}, {"--prefix", "shop", "--json"}} {
		c.wantCommand(2, "has no queue "+strings.TrimPrefix(none[1], dirs[0]), append([]string{"queues"}, none...)...)
	}
	for _, test := range []struct {
		args   []string
		queues int
	}{
		{nil, 6},
		{[]string{"--prefix", "shop_"}, 2},
		{[]string{"--prefix", "shop_*"}, 4},
		{[]string{"--path", dirs[1]}, 3},
		{[]string{"--path", link}, 3},
		{[]string{"--path", real}, 3},
		{[]string{"--path", dirs[1] + "/", "--prefix", "shop_"}, 1},
		{[]string{"--path", dirs[1], "--prefix", "*"}, 3},
	} {
		if queues := c.listed(test.args...); len(queues) != test.queues || queues == nil {
			t.Errorf("%v lists %d queues; expected %d", test.args, len(queues), test.queues)
		}
	}
	for _, test := range []struct {
		args   []string
		code   int
		paused int // queues of the configuration
	}{
		{[]string{"pause", "--prefix", "shop_", "--path", dirs[0], "--until", "2999-12-24T10:00:00+01:00"}, 0, 1},
		{[]string{"resume", "--prefix", "shop_", "--path", dirs[0]}, 0, 0},
		{[]string{"pause", "--prefix", "shop_*", "--path", dirs[0], "--wait"}, 0, 2},
		{[]string{"pause", "--prefix", "shop_", "--path", real, "--wait"}, 0, 2},
		{[]string{"pause", "--prefix", "shop_*"}, 0, 4},
		{[]string{"resume", "--prefix", "shop_*", "--path", dirs[1]}, 0, 2},
		{[]string{"resume", "--prefix", "shop_x_"}, 1, 2}, // bug: the pause of several went on, and the exit code was 0
		{[]string{"resume", "--prefix", "*"}, 0, 0},
		{[]string{"pause", "--prefix", "none_*"}, 2, 0},
		{[]string{"pause", "--prefix", "shop_*", "--for", "soon"}, 1, 0},
		{[]string{"pause", "--prefix", "shop_", "--path", t.TempDir()}, 2, 0},
	} {
		c.wantCommand(test.code, "", test.args...)
		paused := 0
		for _, q := range c.queues() {
			if q.PausedUntil != nil && !strings.HasSuffix(q.Prefix, "*") {
				paused++
			}
		}
		if paused != test.paused {
			t.Errorf("after %v, %d queues are paused; expected %d", test.args, paused, test.paused)
		}
	}
}

// If no Caddy answers, or another one, the commands say so and fail, and print nothing else.
func TestCommandWithoutServer(t *testing.T) {
	t.Parallel()
	answering := func(answer http.HandlerFunc) string {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	evict := []string{"evict", "--prefix", "a_", "--force", "17"}
	pause, resume := []string{"pause", "--prefix", "a_"}, []string{"resume", "--prefix", "a_"}
	nobody := testprocess.FreeAddr(t)
	for _, test := range []struct {
		args          []string
		address, says string
	}{
		{[]string{"queues"}, nobody, "no Caddy answers at"},
		{evict, nobody, "no Caddy answers at"},
		{pause, nobody, "no Caddy answers at"},
		{[]string{"queues"}, answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), " within 5s"},
		{[]string{"queues"}, answering(http.NotFound), "built without serialize"}, // all commands read answers alike
		{pause, answering(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"error":"host not allowed: example.com"}`))
		}), "host not allowed"},
		{resume, answering(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }), "which may be no admin API"},
		{[]string{"queues"}, strings.TrimPrefix(answering(http.NotFound), "127.0.0.1"), "built without serialize"}, // bug: host not allowed
		{[]string{"queues"}, "http://" + nobody, "expected host:port or unix//path"},                               // bug: unknown network http:
		{[]string{"pause", "--prefix", ""}, "", "expected the prefix of a queue"},
	} {
		cmd := testcaddy.Command(t, append([]string{"serialize"}, test.args...)...)
		cmd.Env = append(cmd.Env, "CADDY_ADMIN="+test.address)
		out, errs, code := testcaddy.OutputOf(t, cmd)
		if code != 1 || out != "" || !strings.Contains(errs, test.says) || !strings.Contains(errs, test.address) {
			t.Errorf("caddy serialize %v: exit code %d: %s%s; expected %q", test.args, code, out, errs, test.says)
		}
	}
}

// A queue that cannot be read is an error, which in JSON stands in the queue's place. The
// others are listed. Bug: what a Caddy says controlled the terminal, by the names in an error and
// as JSON.
func TestCommandWithUnreadableQueue(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"path":"/q\u001b[2J","prefix":"a_\u202e","tickets":[],"error":"disk \u001b[2J gone"},` +
			`{"path":"/q","prefix":"b_","waiting":1,"tickets":[{"token":"1","state":"waiting","owner":"\u007f\u009b31m\u2066é","client":"\u009b31m","request":{"path":"/\u001b"}}]}]`))
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct{ says, not, flag string }{{"b_  in /q", "a_  in", "--prefix=*"}, {`"owner": "\u007f\u009b31m\u2066é"`, "\x1b", "--json"}} {
		out, errs, code := testcaddy.Output(t, "serialize", "queues", "--address", address, test.flag)
		if code != 1 || !strings.Contains(out, test.says) || strings.Contains(out, test.not) || !strings.Contains(errs, "queue a_\ufffd in /q\ufffd[2J cannot be read: disk ") {
			t.Errorf("%s: exit code %d: %s%s", test.flag, code, out, errs)
		}
		if strings.ContainsAny(out+errs, "\x1b\x7f\u009b\u202e\u2066") {
			t.Errorf("the terminal is controlled by %q", out+errs)
		}
	}
}

// A stopped process keeps its tickets, and does not answer, neither a command nor another
// process that is asked to evict. Bug: of a request inside, the command said that it was
// cancelled.
func TestEvictFromStopped(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "prefix a_")
	other := c.another()
	holder, waiter := c.holder(t), other.waiter("waiter", 2)
	tickets := c.awaitQueue("a_", 1, 1).Tickets
	other.Signal(syscall.SIGSTOP)
	c.wantEvict(4, "it evicts the ticket once it continues", tickets[1].Token)
	other.Signal(syscall.SIGCONT)
	c.Signal(syscall.SIGSTOP)
	c.wantEvict(4, " within 5s", tickets[0].Token, "--force") // it takes the connection
	other.wantEvict(4, fmt.Sprintf("pid %d", c.PID), tickets[0].Token, "--force")
	c.Signal(syscall.SIGCONT)
	(<-waiter).Want(t, http.StatusServiceUnavailable)
	c.Open("holder")
	<-holder // it may have been cancelled
	c.awaitTickets(0)
}

// Bug: text in angle brackets was missing from the man pages, which are made from
// Markdown.
func TestManPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, errs, code := testcaddy.Output(t, "manpage", "--directory", dir); code != 0 {
		t.Fatalf("caddy manpage: exit code %d: %s", code, errs)
	}
	for page, synopsis := range map[string]string{
		"caddy-serialize-evict": `caddy serialize evict --prefix P [--force] TOKEN [flags]`,
		"caddy-serialize-pause": `caddy serialize pause --prefix P [--for 10m | --until T] [--wait] [flags]`,
		"caddy-ids-decode":      `caddy ids decode [ID...] [--json] [flags]`,
	} {
		text, err := os.ReadFile(filepath.Join(dir, page+".8"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(strings.ReplaceAll(string(text), `\&`, ""), synopsis) {
			t.Errorf("%s has no %q:\n%s", page, synopsis, text)
		}
	}
}

// What the commands print without a server. Bugs: an unknown subcommand printed the help, and the exit code
// was 0; there was no completion for values.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	const noFiles = ":4"
	for _, c := range []struct {
		args []string
		out  []string // none: nothing, and the exit code is 1
		errs string
	}{
		{[]string{"ids", "make"}, nil, `unknown command "make" for "caddy ids"`},
		{[]string{"serialize", "make"}, nil, `unknown command "make" for "caddy serialize"`},
		{[]string{"ids"}, []string{"Available Commands"}, ""},
		{[]string{"serialize"}, []string{"Available Commands"}, ""},
		{[]string{"__complete", "ids", ""}, []string{"new\t", "decode\t", noFiles}, ""},
		{[]string{"__complete", "ids", "new", "--scheme", ""}, []string{"txid", "unique_id", "sharded_id", "call_number", noFiles}, ""},
		{[]string{"__complete", "ids", "decode", ""}, []string{noFiles}, ""},
	} {
		out, errs, code := testcaddy.Output(t, c.args...)
		missing := slices.ContainsFunc(c.out, func(want string) bool { return !strings.Contains(out, want) })
		if missing || !strings.Contains(errs, c.errs) || code != map[bool]int{true: 1}[c.out == nil] || (out == "") != (c.out == nil) {
			t.Errorf("caddy %q: exit code %d, %s%s; expected %q%s", c.args, code, out, errs, c.out, c.errs)
		}
	}
}
