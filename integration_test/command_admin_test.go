package integration_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// output is what the command caddy prints with an environment of its own.
func output(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := testcaddy.Command(t, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Bug: the commands read the shell's temporary directory, not the server's, and knew
// nothing of queues without a directory. Now they ask the server.
func TestCommandAsksServer(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := newSite(t, "engine "+engine)
		one := s.send(t, "POST", "one?password=secret")
		inside := s.NextNamed("one")
		two := s.send(t, "GET", "two")
		q := s.awaitTickets(t, 2)

		config := filepath.Join(t.TempDir(), "Caddyfile")
		testcaddy.WriteFile(t, config, "{\n\tadmin "+s.Admin+"\n}\n")
		for _, c := range []struct{ env, args []string }{
			{nil, []string{"--address", s.Admin}},
			{nil, []string{"--config", config}},
			{[]string{"CADDY_ADMIN=" + s.Admin}, nil},
		} {
			out, errs, code := output(t, c.env, append([]string{"serialize", "queues", "--json"}, c.args...)...)
			if code != 0 {
				t.Fatalf("%v %v: exit code %d: %s", c.env, c.args, code, errs)
			}
			var queues []serializer.QueueState
			fromJSON(t, out, &queues)
			if len(queues) != 1 || len(queues[0].Tickets) != 2 || queues[0].Limit != 1 {
				t.Fatalf("%v %v: queues are %s", c.env, c.args, out)
			}
			for i, ticket := range queues[0].Tickets {
				if ticket.Token != q.Tickets[i].Token || ticket.Request == nil || ticket.Alive == nil || !*ticket.Alive {
					t.Errorf("%v %v: ticket %d is %+v", c.env, c.args, i, ticket)
				}
			}
		}
		out, _, _ := output(t, nil, "serialize", "queues", "--address", s.Admin)
		for _, want := range []string{"WAIT", "HOLD", "REQUEST", "POST " + strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/") + "/one"} {
			if !strings.Contains(out, want) {
				t.Errorf("the table has no %q:\n%s", want, out)
			}
		}
		if strings.Contains(out, "secret") {
			t.Errorf("the table has a query string:\n%s", out)
		}
		t.Logf("\n%s", out)
		inside.Leave()
		testcaddy.Await(t, one)
		s.NextNamed("two").Leave()
		testcaddy.Await(t, two)
	})
}

// Bug: of a server that answers, the command showed that the owners of all tickets are
// alive. A file of another program has no owner.
func TestCommandShowsWhoIsAlive(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one, inside, two, _ := s.holderAndWaiter(t, s.join(t, ""))
	file := filepath.Join(s.dir, lockfile.Name{Prefix: "a_", Number: uint64(time.Now().UnixMicro())}.String())
	testcaddy.WriteFile(t, file, "")
	s.awaitTickets(t, 3)
	var alive []string
	for _, ticket := range listed(t, s)[0].Tickets {
		text := "?"
		if ticket.Alive != nil {
			text = fmt.Sprint(*ticket.Alive)
		}
		alive = append(alive, text)
	}
	if want := []string{"true", "true", "false"}; !slices.Equal(alive, want) {
		t.Errorf("alive are %v; expected %v", alive, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}

// If no Caddy answers, or another one, the commands say so and fail, and print nothing else.
func TestCommandWithoutServer(t *testing.T) {
	t.Parallel()
	answering := func(answer http.HandlerFunc) string {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	for _, c := range []struct{ name, address, says string }{
		{"nobody", testcaddy.ReserveAddr(t), "no Caddy answers at"},
		{"a Caddy without the plugin", answering(http.NotFound), "built without serialize"},
		{"another host", answering(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"error":"host not allowed: example.com"}`))
		}), "host not allowed"},
		{"no JSON", answering(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }), "reading the answer"},
	} {
		for _, args := range [][]string{
			{"queues"}, {"evict", "--prefix", "a_", "--force", "17"}, {"pause", "--prefix", "a_"}, {"resume", "--prefix", "a_"},
		} {
			out, errs, code := output(t, []string{"CADDY_ADMIN=" + c.address}, append([]string{"serialize"}, args...)...)
			if code != 1 || out != "" || !strings.Contains(errs, c.says) || !strings.Contains(errs, c.address) {
				t.Errorf("%s: caddy serialize %v: exit code %d: %s%s; expected %q", c.name, args, code, out, errs, c.says)
			}
		}
	}
}

// A queue that cannot be read is an error, which in JSON stands in the queue's place. The
// others are listed. What a Caddy says does not control the terminal.
func TestCommandWithUnreadableQueue(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"path":"/q","prefix":"a_","tickets":[],"error":"disk \u001b[2J gone"},` +
			`{"path":"/q","prefix":"b_","waiting":1,"tickets":[{"token":"1","state":"waiting","client":"\u009b31m","request":{"path":"/\u001b"}}]}]`))
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct{ says, not, flag string }{{"b_  in /q", "a_  in", "--prefix=*"}, {`"error": "disk `, "\x1b", "--json"}} {
		out, errs, code := output(t, nil, "serialize", "queues", "--address", address, test.flag)
		if code != 1 || !strings.Contains(out, test.says) || strings.Contains(out, test.not) || !strings.Contains(errs, "queue a_ in /q cannot be read: disk ") {
			t.Errorf("%s: exit code %d: %s%s", test.flag, code, out, errs)
		}
		if test.flag != "--json" && strings.ContainsAny(out+errs, "\x1b\u009b") {
			t.Errorf("the terminal is controlled by %q", out+errs)
		}
	}
}

func TestCommandEvictThroughServerErrors(t *testing.T) {
	t.Parallel()
	s := newSite(t, "engine memory")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--prefix", "a_", "17"}, 2, "no ticket 17 in queue a_"},
		{[]string{"--prefix", "b_", "17"}, 2, "no ticket 17 in queue b_"},
		{[]string{"--prefix", "a_", "x"}, 1, "number of a ticket"},
		{[]string{"--prefix", "a_", "17", "--path", s.dir}, 2, "no ticket 17 in queue " + s.dir + "/a_"},
		{[]string{"17"}, 1, "prefix"},
		{[]string{"--prefix", "a_"}, 1, "arg"},
	} {
		_, errs, code := output(t, nil, append([]string{"serialize", "evict", "--address", s.Admin}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("evict %v: exit code %d, %s; expected %d and %q", c.args, code, errs, c.code, c.says)
		}
	}
}
