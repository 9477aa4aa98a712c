//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// pausedSite is a site with a queue of an engine and a prefix.
const pausedSite = `
	serialize_status /queues {
		controls
	}
	serialize {
		path {$DIR}
		engine %s
		prefix %s
		timeout 10m
	}
	reverse_proxy {$UPSTREAM}`

// queue is a queue of a process, or the zero value.
func (c *caddy) queue(prefix string) (found serializer.QueueState) {
	c.t.Helper()
	var queues []serializer.QueueState
	decodeInto(c.t, c.Ask("/serialize/queues"), &queues)
	for _, q := range queues {
		if q.Prefix == prefix {
			return q
		}
	}
	return found
}

// awaitQueue waits until so many are inside a queue, and so many wait.
func (c *caddy) awaitQueue(prefix string, inside, waiting int) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("inside %s are %d, and %d wait", prefix, inside, waiting), func() bool {
		q := c.queue(prefix)
		return q.Inside == inside && q.Waiting == waiting
	})
}

// order asks the admin API to pause or resume a queue.
func (c *caddy) order(prefix, action string) testcaddy.Answer {
	return c.API("POST", "/serialize/queues/"+url.PathEscape(c.dir+"/"+prefix)+"/"+action, "")
}

// pause pauses a queue, and resume resumes it.
func (c *caddy) pause(prefix, length string) {
	c.t.Helper()
	var paused []serializer.QueueState
	decodeInto(c.t, c.order(prefix, "pause?for="+length).Want(c.t, http.StatusOK).Text, &paused)
	if len(paused) != 1 || paused[0].PausedUntil == nil || paused[0].Prefix != prefix {
		c.t.Fatalf("the answer is %+v; the queue should be paused", paused)
	}
}

func (c *caddy) resume(prefix string) {
	c.t.Helper()
	c.order(prefix, "resume").Want(c.t, http.StatusOK)
}

// While a queue is paused, nobody enters, holders finish and all keep their places.
func TestPause(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		upstream := testcaddy.NewUpstream(t)
		s := setup{upstream: upstream, global: "metrics", site: fmt.Sprintf(pausedSite, engine, "a_")}
		c := start(t, s)
		holder := c.holder(t)
		first := c.getting("/?name=first")
		c.awaitQueue("a_", 1, 1)
		c.wantMetric(`paused{queue="a_"}`, "0")

		c.pause("a_", "0")
		if q := c.queue("a_"); !q.PausedUntil.Equal(serializer.Forever) {
			t.Errorf("paused until %v, want until it is resumed", q.PausedUntil)
		}
		c.pause("a_", "10m")
		if left := time.Until(*c.queue("a_").PausedUntil); left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("paused for %v, want 10m", left)
		}
		c.wantMetric(`paused{queue="a_"}`, "1")
		release(t, upstream, holder)
		second := c.getting("/?name=second")
		c.awaitQueue("a_", 0, 2)
		check(t, c.reload(s)) // which takes longer than an entry
		third := c.getting("/?name=third")
		c.awaitQueue("a_", 0, 3)
		upstream.WantOrder("holder")

		c.resume("a_")
		for _, answer := range []<-chan testcaddy.Answer{first, second, third} {
			(<-answer).Want(t, http.StatusOK)
		}
		upstream.WantOrder("holder", "first", "second", "third")
		c.wantMetric(`paused{queue="a_"}`, "0")
		if q := c.queue("a_"); q.PausedUntil != nil {
			t.Errorf("paused until %v after resume", q.PausedUntil)
		}
		c.resume("a_")                                          // again is no error
		c.order("a_", "pause?for=100ms").Want(t, http.StatusOK) // ends by itself
		c.get("/?name=fourth").Want(t, http.StatusOK)
	})
}

// A name that ends in * pauses all queues whose names begin so; the name of a queue
// pauses only that one.
func TestPauseOfPrefix(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, global: "metrics", site: fmt.Sprintf(pausedSite, engine, "user_{query.user}_")})
		const prefix = "user_{http.request.uri.query.user}_"
		for _, name := range []string{"user_*", "us*", "*"} {
			c.order(name, "pause").Want(t, http.StatusOK)
			ann := c.getting("/?name=ann&user=ann")
			c.awaitQueue("user_ann_", 0, 1)
			if c.queue("user_ann_").PausedUntil == nil {
				t.Error("the queue of a paused prefix does not say so")
			}
			c.wantMetric(`paused{queue="`+prefix+`"}`, "1")
			// The page marks the queue, and has a row for the pause.
			if page := c.get("/queues", "Accept", "text/html").Text; strings.Count(page, ">paused<") != 2 || !strings.Contains(page, "2 paused.") {
				t.Errorf("%s: the page does not mark 2 queues as paused:\n%s", name, page)
			}
			c.order(name, "resume").Want(t, http.StatusOK)
			(<-ann).Want(t, http.StatusOK)
		}
		c.order("user_ann_", "pause").Want(t, http.StatusOK) // nobody has come to it yet
		ann := c.getting("/?name=ann&user=ann")
		c.get("/?name=ben&user=ben").Want(t, http.StatusOK)
		c.awaitQueue("user_ann_", 0, 1)
		c.wantMetric(`paused{queue="`+prefix+`"}`, "0")
		c.order("user_ann_", "resume").Want(t, http.StatusOK)
		(<-ann).Want(t, http.StatusOK)
		for _, name := range []string{"user_{query.user}_", prefix} { // it would pause nobody
			c.order(name, "pause").Want(t, http.StatusNotFound)
		}
	})
}

// A pause applies to other processes and to those that start later, even if the process
// that was asked is killed.
func TestPauseAcrossProcesses(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, site: fmt.Sprintf(pausedSite, "file", "a_")}
	s.dir = testcaddy.TempDir(t)
	one, two := start(t, s), start(t, s)
	holder := two.holder(t)
	first := two.getting("/?name=first")
	two.awaitQueue("a_", 1, 1)
	one.pause("a_", "1h")
	one.Kill()
	wait.Until(t, "the other process knows of the pause", func() bool { return two.queue("a_").PausedUntil != nil })
	release(t, upstream, holder)
	two.awaitQueue("a_", 0, 1)
	three := start(t, s)
	second := three.getting("/?name=second")
	three.awaitQueue("a_", 0, 2)
	upstream.WantOrder("holder")
	three.resume("a_")
	(<-first).Want(t, http.StatusOK)
	(<-second).Want(t, http.StatusOK)
	upstream.WantOrder("holder", "first", "second")
}

// Invalid requests are refused, with a hint on what to do.
func TestPauseNonsense(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: fmt.Sprintf(pausedSite, "memory", "a_"), upstream: testcaddy.NewUpstream(t)})
	for _, test := range []struct {
		method, prefix, action string
		status                 int
		says                   string
	}{
		{"GET", "a_", "pause", 405, "not allowed"},
		{"DELETE", "a_", "resume", 400, "expected the number"},
		{"POST", "a_", "pause?for=soon", 400, "expected a duration"},
		{"POST", "a_", "pause?for=-1m", 400, "expected a duration"},
		{"POST", "a_", "pause?for=1ns", 400, "expected a duration"},
		{"POST", "a_", "pause?fro=0", 400, "pause has only the parameters [for], each once"},
		{"POST", "a_", "pause?for=10m&for=0", 400, "pause has only the parameters [for], each once"}, // bug: the first one counted
		{"POST", "a_", "pause?for=10m;for=0", 400, "pause has only the parameters [for], each once"},
		{"POST", "a_", "resume?for=1m", 400, "resume has only the parameters []"},
		{"POST", "b_", "pause", 404, "no such queue"},
		{"POST", "{query.a}", "pause", 404, "no such queue"},
		{"POST", "a_", "stop", 405, "not allowed"},
	} {
		r := c.API(test.method, "/serialize/queues/"+url.PathEscape(c.dir+"/"+test.prefix)+"/"+test.action, "")
		if r.StatusCode != test.status || !strings.Contains(strings.ToLower(r.Text), test.says) {
			t.Errorf("%s %s of %s: %v, want %d with %q", test.method, test.action, test.prefix, r, test.status, test.says)
		}
	}
	c.get("/").Want(t, http.StatusOK)
}

// The page shows a pause, and its controls pause and resume.
func TestPauseOnStatusPage(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: fmt.Sprintf(pausedSite, "memory", "a_"), upstream: testcaddy.NewUpstream(t)})
	press := func(action, length string) testcaddy.Answer {
		order := url.Values{"action": {action}, "queue": {c.dir + "/a_"}, "for": {length}}
		return do(newClient(t, "1.1"), "POST", c.url+"/queues?"+order.Encode(), "", "Sec-Fetch-Site", "same-origin")
	}
	page := func() string { return c.get("/queues", "Accept", "text/html").Want(t, http.StatusOK).Text }
	if !strings.Contains(page(), `data-action="pause"`) {
		t.Error("the page has no control to pause the queue")
	}
	press("pause", "10m").Want(t, http.StatusOK)
	for _, text := range []string{">paused<", "Paused until ", `data-action="resume"`} {
		if !strings.Contains(page(), text) {
			t.Errorf("the page has no %q", text)
		}
	}
	press("pause", "long").Want(t, http.StatusBadRequest)
	press("resume", "").Want(t, http.StatusOK)
	if strings.Contains(page(), ">paused<") {
		t.Error("the page still shows a pause")
	}
	c.get("/").Want(t, http.StatusOK)
}

// The commands pause and resume.
func TestPauseCommands(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: fmt.Sprintf(pausedSite, "file", "a_")})
	run := func(args ...string) (out string, code int) {
		out, errs, code := output(t, nil, append(append([]string{"serialize"}, args...), "--address", c.Admin)...)
		return out + errs, code
	}
	holder := c.holder(t)
	waited := make(chan string, 1)
	go func() {
		out, code := run("pause", "--prefix", "a_", "--for", "1h", "--wait")
		waited <- fmt.Sprint(code, " ", out)
	}()
	wait.Until(t, "the queue is paused", func() bool { return c.queue("a_").PausedUntil != nil })
	first := c.getting("/?name=first")
	c.awaitQueue("a_", 1, 1)
	if len(waited) > 0 {
		t.Fatalf("pause --wait came back while a request was inside: %s", <-waited)
	}
	if out, code := run("queues"); code != 0 || !strings.Contains(out, "waiting 1, paused until ") {
		t.Errorf("queues: exit code %d: %s", code, out)
	}
	if out, code := run("queues", "--json"); code != 0 || !strings.Contains(out, `"paused_until": "`) {
		t.Errorf("queues --json: exit code %d: %s", code, out)
	}
	release(t, upstream, holder)
	if got := <-waited; !strings.HasPrefix(got, "0 a_ in "+c.dir+": paused until ") || !strings.HasSuffix(got, "nobody is inside\n") {
		t.Errorf("pause --wait: %s", got)
	}
	upstream.WantNever("first")
	if out, code := run("resume", "--prefix", "a_"); code != 0 || out != "a_ in "+c.dir+": resumed\n" {
		t.Errorf("resume: exit code %d: %s", code, out)
	}
	(<-first).Want(t, http.StatusOK)

	last := c.getting("/?name=last&gate")
	upstream.AwaitEntry("last")
	if out, code := run("pause", "--prefix", "a_", "--for", "300ms", "--wait"); code != 5 || !strings.Contains(out, "the pause has ended") {
		t.Errorf("pause --for 300ms --wait: exit code %d: %s", code, out)
	}
	upstream.Open("last")
	(<-last).Want(t, http.StatusOK)
	for _, test := range []struct {
		code int
		says string
		args []string
	}{
		{1, "expected a duration", []string{"--prefix", "a_", "--for", "soon"}},
		{1, "expected the prefix of a queue", []string{"--prefix", ""}},
		{2, "no such queue: b_", []string{"--prefix", "b_"}},
	} {
		if out, code := run(append([]string{"pause"}, test.args...)...); code != test.code || !strings.Contains(out, test.says) {
			t.Errorf("pause %v: exit code %d: %s", test.args, code, out)
		}
	}
}

// Through any process of a directory, pause --wait for all queues whose names begin alike
// returns once nobody is inside, although another process has the waiters. The prefix is
// escaped in the names of its queues. Another queue does not count.
func TestPauseOfOthersPrefix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ prefix, name, ann string }{
		{"user_{query.user}_", "user_*", "user_ann_"},
		{"50%_{query.user}_", "50%_*", "50%25_ann_"},
		{"50%_{query.user}_", "50%25_*", "50%25_ann_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			s := setup{upstream: upstream, site: fmt.Sprintf(pausedSite, "file", test.prefix) + `
				handle /all {
					serialize {
						path {$DIR}
						prefix all_
					}
					reverse_proxy {$UPSTREAM}
				}`}
			s.site = strings.Replace(s.site, "serialize {", "serialize /user {", 1)
			s.site = strings.Replace(s.site, "reverse_proxy {$UPSTREAM}", "reverse_proxy /user {$UPSTREAM}", 1)
			s.dir = testcaddy.TempDir(t)
			owner, other := start(t, s), start(t, s)
			holder := owner.getting("/user?name=holder&gate&user=ann")
			upstream.AwaitEntry("holder")
			waiter := owner.getting("/user?name=waiter&user=ann")
			unrelated := owner.getting("/all?name=unrelated&gate")
			upstream.AwaitEntry("unrelated")
			owner.awaitQueue(test.ann, 1, 1)
			waited := inBackground(func() testcaddy.Answer {
				out, errs, code := output(t, nil, "serialize", "pause", "--prefix", test.name, "--for", "5m", "--wait", "--address", other.Admin)
				return testcaddy.Answer{Response: &http.Response{StatusCode: code}, Text: out + errs}
			})
			for _, c := range []*caddy{owner, other} {
				wait.Until(t, "the process knows of the pause", func() bool { return c.queue(test.ann).PausedUntil != nil })
			}
			wantNoAnswer(t, waited, time.Second)
			release(t, upstream, holder)
			if r := <-waited; r.StatusCode != 0 || !strings.HasSuffix(r.Text, "nobody is inside\n") {
				t.Errorf("pause --wait: exit code %d: %s", r.StatusCode, r.Text)
			}
			other.awaitQueue(test.ann, 0, 1)
			for _, c := range []*caddy{owner, other} {
				if q := c.queue("all_"); q.PausedUntil != nil || q.Inside != 1 {
					t.Errorf("the other queue is %+v; it should have one inside, and no pause", q)
				}
			}
			upstream.WantNever("waiter")
			owner.order(test.name, "resume").Want(t, http.StatusOK)
			(<-waiter).Want(t, http.StatusOK)
			upstream.Open("unrelated")
			(<-unrelated).Want(t, http.StatusOK)
		})
	}
}

// A value with a slash in a prefix is found, with and without its path.
func TestPauseOfValueWithSlash(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: fmt.Sprintf(pausedSite, "file", "k_{query.a}_"), upstream: testcaddy.NewUpstream(t)})
	for _, from := range [][]string{nil, {"--path", c.dir}} {
		out, errs, code := output(t, nil, append([]string{"serialize", "pause", "--prefix", "k_a/b_", "--address", c.Admin}, from...)...)
		if code != 0 || !strings.HasPrefix(out, "k_a%2Fb_ in "+c.dir+": paused until ") {
			t.Errorf("%v: exit code %d: %s%s", from, code, out, errs)
		}
		c.order("k_a/b_", "resume").Want(t, http.StatusOK)
	}
	c.get("/?a=a/b").Want(t, http.StatusOK)
}

// Bug: "resume" said "not paused", and exited with 0, when the server was too busy to
// answer. Its queue stayed paused.
func TestResumeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: fmt.Sprintf(pausedSite, "file", "a_")})
	c.pause("a_", "10m")
	c.Stop()
	out, errs, code := output(t, nil, "serialize", "resume", "--address", c.Admin, "--prefix", "a_")
	c.Continue()
	if code != 1 || out != "" || !strings.Contains(errs, "no Caddy answers") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// A pause outlives all processes: all are killed, with requests inside and waiting.
// Processes that start later obey it until its end; then its file is gone.
func TestPauseOutlivesAllProcesses(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, site: fmt.Sprintf(pausedSite, "file", "a_")}
	s.dir = testcaddy.TempDir(t)
	one, two := start(t, s), start(t, s)
	holder := one.getting("/?name=holder&gate")
	upstream.AwaitEntry("holder")
	waiter := two.getting("/?name=waiter")
	two.awaitQueue("a_", 1, 1)
	two.pause("a_", "20s") // a busy machine takes long to start another process
	end := *two.queue("a_").PausedUntil
	two.Kill()
	one.Kill()
	<-holder
	<-waiter
	upstream.Open("holder")

	three := start(t, s)
	first := three.getting("/?name=first")
	three.awaitQueue("a_", 0, 1)
	if q := three.queue("a_"); q.PausedUntil == nil || !q.PausedUntil.Equal(end) {
		t.Errorf("paused until %v; want %v", q.PausedUntil, end)
	}
	(<-first).Want(t, http.StatusOK)
	if early := time.Until(end); early > 0 {
		t.Errorf("somebody entered %v before the end of the pause", early)
	}
	upstream.WantOrder("holder", "first")
	wait.Until(t, "the file of the pause is gone", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.dir, ".orderly-[pi]*"))
		return len(files) == 0
	})
}

// A reload with other settings during a pause admits nobody. After the pause, the waiters
// of the old and the new configuration enter in order.
func TestReloadInPause(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		upstream := testcaddy.NewUpstream(t)
		s := setup{upstream: upstream, site: fmt.Sprintf(pausedSite, engine, "a_")}
		c := start(t, s)
		c.pause("a_", "10m")
		answers := []<-chan testcaddy.Answer{c.getting("/?name=0")}
		c.awaitQueue("a_", 0, 1)
		for i := 1; i < 4; i++ {
			s.site = fmt.Sprintf(pausedSite, engine, fmt.Sprintf("a_\nqueue_length %d", 100+i))
			check(t, c.reload(s))
			answers = append(answers, c.getting(fmt.Sprintf("/?name=%d", i)))
			c.awaitQueue("a_", 0, i+1)
		}
		upstream.WantNever("0")
		c.resume("a_")
		for _, answer := range answers {
			(<-answer).Want(t, http.StatusOK)
		}
		upstream.WantOrder("0", "1", "2", "3")
	})
}
