//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// dry is a site with a dry run.
func dry(options string) string { return "unique_ids\n" + behindQueue("dry_run\n"+options) }

const defaultQueue = `queue="serializer_"`

// In a dry run, nobody waits. Each request is counted by what it would have met in any
// process of the directory, and the page says so.
func TestDryRun(t *testing.T) {
	t.Parallel()
	one := start(t, setup{global: "metrics", site: "serialize_status /queues\n" + dry("queue_length 1\ntimeout 1s\nhold_timeout 1ms\nhold_at_least 1h")})
	other := one.another()
	answers := []<-chan testcaddy.Answer{one.getting("/save?name=first&gate")}
	one.awaitHit("first")
	answers = append(answers, other.getting("/save?name=second&gate"))
	one.awaitHit("second")
	answers = append(answers, one.getting("/look?name=third&gate"))
	one.awaitHit("third")
	if files := lockFiles(t, one.dir); len(files) != 3 {
		t.Errorf("%d tickets for 3 requests: %q", len(files), files)
	}
	one.OpenAll()
	one.wantServed(answers...)
	one.awaitTickets(0)
	one.wantMetric(`requests_total{outcome="would_enter",`+defaultQueue+`}`, "1")
	one.wantMetric(`requests_total{outcome="would_wait",`+defaultQueue+`}`, "1")
	other.wantMetric(`requests_total{outcome="would_wait",`+defaultQueue+`}`, "1")
	for _, outcome := range []string{"entered", "timeout", "queue_full"} {
		one.wantMetric(`requests_total{outcome="`+outcome+`",`+defaultQueue+`}`, "0")
	}

	e := one.awaitEntryOf("dry run: would have waited")
	if e["level"] != "info" || e["method"] != "GET" || e["path"] != "/look" || e["position"] != 2.0 || len(fmt.Sprint(e["txid"])) != 20 {
		t.Errorf("the log entry is %v", e)
	}
	wait.Until(t, "the page says so", func() bool { // a list of a busy machine may come too late
		page := one.get("/queues", "Accept", "text/html").Want(t, http.StatusOK).Text
		return strings.Contains(page, ">dry run<") && strings.Contains(page, "Dry run: nobody waits. 1 requests would have waited, 1 not.")
	})
}

// Bug: a dry run waited for a real request, or for the end of a pause, and was refused. It counts by the
// concurrency.
func TestDryRunBesideQueue(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "metrics", site: `
		handle /real {
			` + serialized + `
		}
		handle /two {
			` + dry("prefix two_\nconcurrency 2") + `
		}
		handle {
			` + dry("timeout 1h") + `
		}`})
	real := c.getting("/real?name=real&gate")
	c.awaitHit("real")
	c.get("/?name=beside").Want(t, http.StatusOK)
	c.Open("real")
	c.wantServed(real)
	c.pause("serializer_", "0")
	c.get("/?name=paused").Want(t, http.StatusOK)
	c.wantMetric(`requests_total{outcome="would_wait",`+defaultQueue+`}`, "2")
	c.awaitTickets(0)
	var answers []<-chan testcaddy.Answer
	for _, name := range []string{"one", "two", "three"} {
		answers = append(answers, c.getting("/two?gate&name="+name))
		c.awaitHit(name)
	}
	c.OpenAll()
	c.wantServed(answers...)
	c.wantMetric(`requests_total{outcome="would_enter",queue="two_"}`, "2")
	c.wantMetric(`requests_total{outcome="would_wait",queue="two_"}`, "1")
}

// A dry run must not take a site down: if the storage fails, requests pass.
func TestDryRunWithoutStorage(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "metrics", site: dry("")})
	check(t, os.RemoveAll(c.dir))
	testcaddy.WriteFile(t, c.dir, "")
	c.get("/?name=first").Want(t, http.StatusOK)
	do(newClient(t, "1.1"), "POST", c.url+"/?name=second", "body").Want(t, http.StatusOK)
	c.wantOrder("first", "second")
	c.wantMetric(`requests_total{outcome="storage",`+defaultQueue+`}`, "2")
	e := c.awaitEntryOf("dry run: passed without a ticket; a queue would have refused it")
	if e["level"] != "error" || !strings.Contains(fmt.Sprint(e["error"]), c.dir) {
		t.Errorf("the log entry is %v", e)
	}
}

// A client and an upstream may take turns to send, in a dry run as in a queue that neither
// keeps the body nor the answer. Bug: a dry run read the body before it let the request
// continue, and both waited for each other.
func TestDialogue(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		check(t, errors.Join(control.EnableFullDuplex(), control.Flush()))
		for lines := bufio.NewScanner(r.Body); lines.Scan(); { // it answers each line as it comes
			fmt.Fprintln(w, lines.Text())
			_ = control.Flush()
		}
	}))
	for _, options := range []string{"dry_run", "buffer off\nresponse_buffer 0"} {
		c := start(t, setup{servers: "enable_full_duplex", site: "serialize {\npath {$DIR}\n" + options + "\n}\nreverse_proxy " + upstream + " {\nflush_interval -1\n}"})
		body, client := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		t.Cleanup(cancel)
		request, err := http.NewRequestWithContext(ctx, "POST", c.url, body)
		check(t, err)
		answer, err := http.DefaultTransport.RoundTrip(request)
		check(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewReader(answer.Body)
		for _, word := range []string{"one", "two"} {
			_, err := io.WriteString(client, word+"\n")
			check(t, err)
			if line, err := lines.ReadString('\n'); err != nil || line != word+"\n" {
				t.Errorf("the answer to %q is %q, error %v", word, line, err)
			}
		}
		check(t, client.Close())
	}
}
