//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// latest is a site where the latest request wins.
const latest = `
	serialize {
		path {$DIR}
		prefix %s
		queue_length 1
		when_full drop_oldest
		error_code 409
	}
	reverse_proxy {$BACKEND}
	handle_errors 409 {
		respond {http.serialize.reason}
	}`

// Of a hundred saves in a row, the first and the last reach the upstream; the others
// are refused as soon as the next one has come, also if they come to two processes.
func TestLatestWins(t *testing.T) {
	t.Parallel()
	const saves = 100
	for _, test := range []struct {
		name      string
		processes int
	}{{"one process", 1}, {"two processes in turn", 2}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := setup{backend: b, global: "metrics", site: fmt.Sprintf(latest, "save_")}
			var processes []*caddy
			for range test.processes {
				c := start(t, s)
				s.dir = c.dir
				processes = append(processes, c)
			}
			first := processes[0].getting("/?name=first&gate")
			b.awaitEntry(t, "first")
			waiting := arrive(t, processes[0], b, "save1")
			for i := 2; i < saves; i++ {
				next := arrive(t, processes[i%len(processes)], b, fmt.Sprint("save", i))
				if r := (<-waiting).want(t, http.StatusConflict); r.body != "superseded" {
					t.Fatalf("save %d was refused because of %q", i-1, r.body)
				}
				waiting = next
			}
			b.wantNever(t, "save99")
			b.open("first")
			(<-first).want(t, http.StatusOK)
			(<-waiting).want(t, http.StatusOK)
			b.wantOrder(t, "first", "save99")
			processes[0].wantNoTickets()
			if test.processes == 1 {
				processes[0].wantMetric(`requests_total{outcome="superseded",queue="save_"}`, "98")
				processes[0].wantMetric(`requests_total{outcome="queue_full",queue="save_"}`, "0")
			}
		})
	}
}

// With placeholders, each queue has its own latest request.
func TestLatestWinsForEachUser(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{backend: b, site: fmt.Sprintf(latest, "user_{query.user}_")})
	var holders, waiting []<-chan response
	for _, user := range []string{"ann", "ben"} {
		holders = append(holders, c.getting("/?gate&name=holder+"+user+"&user="+user))
		b.awaitEntry(t, "holder "+user)
		waiting = append(waiting, c.getting("/?name=first+"+user+"&user="+user))
		c.awaitTickets(2 * len(holders))
	}
	latest := c.getting("/?name=latest+ann&user=ann")
	(<-waiting[0]).want(t, http.StatusConflict)
	if len(waiting[1]) > 0 {
		t.Errorf("ben's request was answered: %v", <-waiting[1])
	}
	b.openAll()
	for _, answer := range append(holders, latest, waiting[1]) {
		(<-answer).want(t, http.StatusOK)
	}
	b.wantNever(t, "first ann")
}

// Readers and writers supersede each other in order of arrival, and a client that
// waits to be asked for its body is not refused because the queue is full.
func TestLatestWinsAmongReadersAndWriters(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{backend: b, site: `
		serialize {
			path {$DIR}
			shared_methods GET
			queue_length 2
			when_full drop_oldest
			error_code 409
		}
		reverse_proxy {$BACKEND}`})
	send := func(method, name string, header ...string) <-chan response {
		return inBackground(func() response {
			return do(newClient(t, "1.1"), method, c.url+"/?name="+name, "", header...)
		})
	}
	reader := c.getting("/?name=reader&gate")
	b.awaitEntry(t, "reader")
	writer := send("POST", "writer1")
	c.awaitTickets(2)
	second := c.getting("/?name=reader2") // behind a writer
	c.awaitTickets(3)
	third := inBackground(func() response {
		return do(newClient(t, "1.1"), "POST", c.url+"/?name=writer2", "body", "Expect: 100-continue")
	})
	(<-writer).want(t, http.StatusConflict)
	// Nothing but readers is ahead of the second reader now.
	(<-second).want(t, http.StatusOK)
	b.open("reader")
	(<-reader).want(t, http.StatusOK)
	(<-third).want(t, http.StatusOK)
	b.wantNever(t, "writer1")
	if got := b.order(); !slices.Equal(got, []string{"reader", "reader2", "writer2"}) {
		t.Errorf("the backend saw %v", got)
	}
}

// A reload that changes the engine keeps the rule: what waits for the old engine is
// superseded, too.
func TestLatestWinsAcrossEngines(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	site := func(engine string) setup {
		return setup{backend: b, site: "serialize {\npath {$DIR}\nengine " + engine + "\nqueue_length 1\nwhen_full drop_oldest\nerror_code 409\n}\nreverse_proxy {$BACKEND}"}
	}
	c := start(t, site("file"))
	holder := c.holder(t)
	check(t, c.reload(site("memory")))
	var waiting <-chan response
	for i := range 10 {
		next := c.getting(fmt.Sprintf("/?name=%d", i))
		if waiting != nil {
			(<-waiting).want(t, http.StatusConflict)
		} else {
			eventually(t, patience, "the request waits", func() bool { return strings.Contains(c.ask("/serialize/queues"), "former engine") })
		}
		waiting = next
	}
	b.open("holder")
	(<-holder).want(t, http.StatusOK)
	(<-waiting).want(t, http.StatusOK)
	b.wantOrder(t, "holder", "9")
}
