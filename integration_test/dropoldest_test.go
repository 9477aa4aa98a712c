//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
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
	reverse_proxy {$UPSTREAM}
	handle_errors 409 {
		respond {http.serialize.reason}
	}`

// Of a hundred saves in a row, the first and the last reach the upstream. The others are
// refused as soon as the next one has come, even if they come to two processes.
func TestLatestWins(t *testing.T) {
	t.Parallel()
	const saves = 100
	for _, test := range []struct {
		name      string
		processes int
	}{{"one process", 1}, {"two processes in turn", 2}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			s := setup{upstream: upstream, global: "metrics", site: fmt.Sprintf(latest, "save_")}
			var processes []*caddy
			for range test.processes {
				c := start(t, s)
				s.dir = c.dir
				processes = append(processes, c)
			}
			first := processes[0].getting("/?name=first&gate")
			upstream.AwaitEntry("first")
			waiting := arrive(t, processes[0], upstream, "save1")
			for i := 2; i < saves; i++ {
				next := arrive(t, processes[i%len(processes)], upstream, fmt.Sprint("save", i))
				if r := (<-waiting).Want(t, http.StatusConflict); r.Text != "superseded" {
					t.Fatalf("save %d was refused because of %q", i-1, r.Text)
				}
				waiting = next
			}
			upstream.WantNever("save99")
			upstream.Open("first")
			(<-first).Want(t, http.StatusOK)
			(<-waiting).Want(t, http.StatusOK)
			upstream.WantOrder("first", "save99")
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
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: fmt.Sprintf(latest, "user_{query.user}_")})
	var holders, waiting []<-chan testcaddy.Answer
	for _, user := range []string{"ann", "ben"} {
		holders = append(holders, c.getting("/?gate&name=holder+"+user+"&user="+user))
		upstream.AwaitEntry("holder " + user)
		waiting = append(waiting, c.getting("/?name=first+"+user+"&user="+user))
		c.awaitTickets(2 * len(holders))
	}
	latest := c.getting("/?name=latest+ann&user=ann")
	(<-waiting[0]).Want(t, http.StatusConflict)
	if len(waiting[1]) > 0 {
		t.Errorf("ben's request was answered: %v", <-waiting[1])
	}
	upstream.OpenAll()
	for _, answer := range append(holders, latest, waiting[1]) {
		(<-answer).Want(t, http.StatusOK)
	}
	upstream.WantNever("first ann")
}

// Readers and writers supersede each other in order of arrival. A client that waits for
// 100 Continue is not refused because the queue is full.
func TestLatestWinsAmongReadersAndWriters(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			shared_methods GET
			queue_length 2
			when_full drop_oldest
			error_code 409
		}
		reverse_proxy {$UPSTREAM}`})
	send := func(method, name string, header ...string) <-chan testcaddy.Answer {
		return inBackground(func() testcaddy.Answer {
			return do(newClient(t, "1.1"), method, c.url+"/?name="+name, "", header...)
		})
	}
	reader := c.getting("/?name=reader&gate")
	upstream.AwaitEntry("reader")
	writer := send("POST", "writer1")
	c.awaitTickets(2)
	second := c.getting("/?name=reader2") // behind a writer
	c.awaitTickets(3)
	third := inBackground(func() testcaddy.Answer {
		return do(newClient(t, "1.1"), "POST", c.url+"/?name=writer2", "body", "Expect", "100-continue")
	})
	(<-writer).Want(t, http.StatusConflict)
	// Nothing but readers is ahead of the second reader now.
	(<-second).Want(t, http.StatusOK)
	upstream.Open("reader")
	(<-reader).Want(t, http.StatusOK)
	(<-third).Want(t, http.StatusOK)
	upstream.WantNever("writer1")
	if got := upstream.Order(); !slices.Equal(got, []string{"reader", "reader2", "writer2"}) {
		t.Errorf("the upstream saw %v", got)
	}
}
