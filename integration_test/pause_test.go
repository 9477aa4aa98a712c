//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// pausedSite is a site with a queue of an engine and a prefix.
func pausedSite(engine, prefix string) string {
	return "serialize_status /queues\n" + behindQueue("timeout 10m\nengine "+engine+"\nprefix "+prefix)
}

// order asks the admin API to pause or resume a queue.
func (c *caddy) order(prefix, action string) testcaddy.Answer {
	return c.API("POST", c.path(prefix)+"/"+action, "")
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

// awaitPause waits until a process knows of a pause.
func (c *caddy) awaitPause(prefix string) {
	c.t.Helper()
	wait.Until(c.t, "the process knows of the pause", func() bool { return c.queue(prefix).PausedUntil != nil })
}

// While a queue is paused, nobody enters, holders finish and all keep their places, also
// through reloads with other settings.
func TestPause(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		s := setup{global: "metrics", site: pausedSite(engine, "a_")}
		c := start(t, s)
		holder := c.holder(t)
		answers := []<-chan testcaddy.Answer{c.getting("/?name=0")}
		c.awaitQueue("a_", 1, 1)
		c.wantMetric(`paused{queue="a_"}`, "0")

		c.order("a_", "pause?until=2999-01-01T00:00:00+01:00").Want(t, http.StatusOK) // bug: the plus was read as a space
		c.pause("a_", "0")
		if q := c.queue("a_"); !q.PausedUntil.Equal(serializer.Forever) {
			t.Errorf("paused until %v, want until it is resumed", q.PausedUntil)
		}
		c.pause("a_", "10m")
		if left := time.Until(*c.queue("a_").PausedUntil); left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("paused for %v, want 10m", left)
		}
		c.wantMetric(`paused{queue="a_"}`, "1")
		c.wantCommand(0, "waiting 1, paused until ", "queues")
		c.release(holder)
		for i := 1; i < 4; i++ {
			answers = append(answers, c.getting(fmt.Sprint("/?name=", i)))
			c.awaitQueue("a_", 0, i+1)
			s.site = pausedSite(engine, fmt.Sprint("a_\nqueue_length ", 100+i))
			check(t, c.reload(s)) // which takes longer than an entry
		}
		c.wantOrder("holder")

		c.resume("a_")
		c.wantServed(answers...)
		c.wantOrder("holder", "0", "1", "2", "3")
		c.wantMetric(`paused{queue="a_"}`, "0")
		if q := c.queue("a_"); q.PausedUntil != nil {
			t.Errorf("paused until %v after resume", q.PausedUntil)
		}
		c.resume("a_")                                          // again is no error
		c.order("a_", "pause?for=100ms").Want(t, http.StatusOK) // ends by itself
		c.get("/?name=fourth").Want(t, http.StatusOK)
		c.wantMetric(`wait_seconds_count{queue="a_"}`, "6") // also that of the holder, who entered at once
	})
}

// The log says who has paused a queue and until when, and so do refusals of that time. Bug:
// they said that the request had waited too long, and to come back in a second.
func TestPauseIsTold(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "debug", site: behindQueue("timeout 100ms\nprefix a_")})
	refused := func(least, most int) {
		t.Helper()
		text := c.get("/").Want(t, http.StatusServiceUnavailable).Header.Get("Retry-After")
		if after, err := strconv.Atoi(text); err != nil || after < least || after > most {
			t.Errorf("Retry-After: %q; expected %d to %d seconds", text, least, most)
		}
	}
	c.pause("a_", "10m")
	refused(500, 601)
	cmd := testcaddy.Command(t, "serialize", "pause", "--prefix", "a_", "--for", "0", "--address", c.Admin)
	cmd.Env = append(cmd.Env, "USER=", "SUDO_USER=")
	if out, _, code := testcaddy.OutputOf(t, cmd); code != 0 || !strings.Contains(out, "until it is resumed") {
		t.Errorf("exit code %d: %s", code, out)
	}
	refused(120, 120)
	c.resume("a_")
	c.get("/").Want(t, http.StatusOK)

	for message, fields := range map[string]map[string]any{
		"queue paused":     {"level": "warn", "queue": "a_", "path": c.dir},
		"queue resumed":    {"level": "warn", "queue": "a_", "path": c.dir},
		"operator: pause":  {"level": "warn", "queue": c.dir + "/a_", "logger": "admin.api.serialize"},
		"operator: resume": {"level": "warn", "queue": c.dir + "/a_", "logger": "admin.api.serialize"},
		"refused":          {"level": "warn", "queue": "a_", "reason": "timeout", "paused": true},
	} {
		line := c.awaitEntryOf(message)
		for name, want := range fields {
			if line[name] != want {
				t.Errorf("%s: %s is %v; expected %v", message, name, line[name], want)
			}
		}
	}
	// Bug: a pause without an end ended in 1816, as a number of seconds since 1970 in JSON.
	if until := c.awaitEntries("queue paused", 2)[1].Text("until"); until != serializer.Forever.Format(time.RFC3339) {
		t.Errorf("the log says that the pause ends %s", until)
	}
	asked := c.awaitEntries("operator: pause", 2)
	until, token := asked[0]["answer"].([]any)[0].(map[string]any)["paused_until"], asked[0]["token"]
	if until == nil || asked[0]["remote_addr"] == nil || token != nil { // bug: there was an empty token
		t.Errorf("who paused the queue, and until when? %v", asked[0])
	}
	// Bug: without $USER, as in a container, nobody knew who it was.
	if agent := asked[1].Text("user_agent"); agent != fmt.Sprint("caddy serialize pause by user ", os.Getuid()) {
		t.Errorf("the command is called %q", agent)
	}
	c.awaitEntry("the event of a refusal in a pause", func(e entry) bool {
		data, _ := e["data"].(map[string]any)
		return e["name"] == "serialize_refused" && data["paused"] == true
	})
}

// A name that ends in * pauses all queues whose names begin so; the name of a queue
// pauses only that one. Bug: a queue could not be paused if a client's value with braces was in its name, which
// looked like a placeholder.
func TestPauseOfPrefix(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "metrics", site: pausedSite("file", "user_{query.user}_")})
	const prefix = "user_{http.request.uri.query.user}_"
	c.order("us*", "pause").Want(t, http.StatusOK)
	ann := c.getting("/?name=ann&user=ann")
	c.awaitQueue("user_ann_", 0, 1)
	if c.queue("user_ann_").PausedUntil == nil {
		t.Error("the queue of a paused prefix does not say so")
	}
	c.wantMetric(`paused{queue="`+prefix+`"}`, "1")
	// The page marks the queue, and has a row for the pause.
	if page := c.get("/queues", "Accept", "text/html").Text; strings.Count(page, ">paused<") != 2 || !strings.Contains(page, "2 paused.") {
		t.Errorf("the page does not mark 2 queues as paused:\n%s", page)
	}
	c.resume("us*")
	c.wantServed(ann)
	c.order("user_ann_", "pause").Want(t, http.StatusOK) // nobody is in it
	ann = c.getting("/?name=ann&user=ann")
	c.get("/?name=ben&user=ben").Want(t, http.StatusOK)
	c.awaitQueue("user_ann_", 0, 1)
	c.wantMetric(`paused{queue="`+prefix+`"}`, "0")
	c.resume("user_ann_")
	c.wantServed(ann)
	for _, name := range []string{"user_{query.user}_", prefix} { // it would pause nobody
		c.order(name, "pause").Want(t, http.StatusNotFound)
	}
	holder := c.getting("/?name=holder&gate&user=%7Bx%7D")
	c.awaitQueue("user_{x}_", 1, 0)
	c.pause("user_{x}_", "1h")
	c.resume("user_{x}_")
	c.release(holder)
}

// Through any process of a directory, pause --wait for all queues whose names begin alike
// returns once nobody is inside, although another process has the waiters. The prefix is
// escaped in the names of its queues, and may be given so, too. Another queue does not count.
func TestPauseOfOthersPrefix(t *testing.T) {
	t.Parallel()
	const ann = "50%25_ann_"
	owner := start(t, setup{site: "handle /user {\n" + behindQueue("prefix 50%_{query.user}_") + "\n}\nhandle {\n" + behindQueue("prefix all_") + "\n}"})
	other := owner.another()
	holder := owner.getting("/user?name=holder&gate&user=ann")
	owner.awaitHit("holder")
	waiter := owner.getting("/user?name=waiter&user=ann")
	unrelated := owner.getting("/all?name=unrelated&gate")
	owner.awaitHit("unrelated")
	owner.awaitQueue(ann, 1, 1)
	other.wantCommand(5, "the pause has ended", "pause", "--prefix", "50%_*", "--for", "300ms", "--wait")
	waited := inBackground(func() testcaddy.Answer {
		out, errs, code := other.command("pause", "--prefix", "50%_*", "--for", "5m", "--wait")
		return testcaddy.Answer{Response: &http.Response{StatusCode: code}, Text: out + errs}
	})
	owner.awaitPause(ann)
	other.awaitPause(ann)
	wantNoAnswer(t, waited, time.Second)
	owner.release(holder)
	if r := <-waited; r.StatusCode != 0 || !strings.HasSuffix(r.Text, "nobody is inside\n") {
		t.Errorf("pause --wait: exit code %d: %s", r.StatusCode, r.Text)
	}
	other.awaitQueue(ann, 0, 1)
	for _, c := range []*caddy{owner, other} {
		if q := c.queue("all_"); q.PausedUntil != nil || q.Inside != 1 {
			t.Errorf("the other queue is %+v; it should have one inside, and no pause", q)
		}
	}
	owner.WantNever("waiter")
	owner.resume("50%25_*")
	owner.Open("unrelated")
	owner.wantServed(waiter, unrelated)
}
