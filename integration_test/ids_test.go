//go:build unix

package integration_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// A request has the same IDs wherever they are used.
func TestIDsStayTheSame(t *testing.T) {
	t.Parallel()
	const idText = "{http.request.txid} {unique_id} {http.request.sharded_id} {http.request.call_number}"
	const idBody = `respond "` + idText + `"`
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Ids"))
	}))
	tests := []struct {
		name string
		more string
		site string
	}{
		{"as it is", "", idBody},
		{"rewrite", "", "rewrite /elsewhere?{query}\nroute /elsewhere {\n" + idBody + "\n}"},
		{"error routes", "", "handle {\nerror 418\n}\nhandle_errors {\n" + idBody + "\n}"},
		{"named route", "&(named) {\n" + idBody + "\n}", "invoke named"},
		{"subroute", "", "route {\nunique_ids {\nlayout modern\n}\nhandle {\n" + idBody + "\n}\n}"},
		{"behind a queue", "", "serialize {\npath {$DIR}\n}\n" + idBody},
		{"at the upstream", "", "reverse_proxy {$UPSTREAM} {\nheader_up X-Ids \"" + idText + "\"\n}"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{more: test.more, site: `
				unique_ids
				log
				header X-Request-Id {http.request.txid}
				header X-Ids "` + idText + `"
				` + strings.ReplaceAll(test.site, "{$UPSTREAM}", upstream)})
			seen := make(map[string]bool)
			for range 3 {
				r := c.get("/")
				ids := r.Header.Get("X-Ids")
				if r.Err != nil || r.Text != ids || seen[ids] {
					t.Fatalf("answered %v", r)
				}
				seen[ids] = true
				wantIDs(t, ids)
				c.awaitAccess(r.Header.Get("X-Request-Id"))
			}
		})
	}
}

// wantIDs fails the test unless the text has one ID of each kind.
func wantIDs(t *testing.T, text string) {
	t.Helper()
	ids := strings.Fields(text)
	if len(ids) != 4 {
		t.Fatalf("IDs %q", text)
	}
	_, err := uniqueid.ParseTXID(ids[0])
	check(t, err)
	unique, err := uniqueid.ParseUniqueID(ids[1])
	check(t, err)
	if unique.Layout() != uniqueid.Classic {
		t.Errorf("%s has the layout %v", ids[1], unique.Layout())
	}
	_, err = uniqueid.ParseShardedID(ids[2])
	check(t, err)
	_, err = uniqueid.ParseCallNumber(ids[3])
	check(t, err)
}

// awaitAccess waits for the access log's entry of a request.
func (c *caddy) awaitAccess(txid string) entry {
	c.t.Helper()
	return c.awaitEntry("the access log has txid "+txid, func(e entry) bool {
		return strings.HasPrefix(e.Text("logger"), "http.log.access") && e.Text("txid") == txid
	})
}

// An error that passes the handler gets the txid as its ID, so the error log and the
// access log join.
func TestErrorLogJoinsAccessLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		site   string
		status int
	}{
		{"error", "error broken 503", http.StatusServiceUnavailable},
		{"upstream down", "reverse_proxy 127.0.0.1:1", http.StatusBadGateway},
		{"refused", "serialize {\npath {$DIR}\nqueue_length 1\n}\nreverse_proxy {$UPSTREAM}", http.StatusServiceUnavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: `
				unique_ids
				log
				header X-Request-Id {http.request.txid}
				` + test.site})
			if test.name == "refused" {
				c.getting("/?name=holder&gate")
				upstream.AwaitEntry("holder")
				c.getting("/?name=waiter")
				c.awaitTickets(2)
			}
			txid := c.get("/").Want(t, test.status).Header.Get("X-Request-Id")
			if txid == "" {
				t.Fatal("no X-Request-Id")
			}
			c.awaitAccess(txid)
			c.awaitEntry("the error log has err_id "+txid, func(e entry) bool {
				return strings.HasPrefix(e.Text("logger"), "http.log.error") && e.Text("err_id") == txid
			})
			if test.name == "refused" {
				if line := c.wantRefusalLogged("queue_full", "serializer_"); line.Text("txid") != txid {
					t.Errorf("the log of the refusal has the txid %q, want %q", line.Text("txid"), txid)
				}
			}
		})
	}
}

// A request that uses no ID makes none: unique_ids count, and none is missing in between.
func TestNoIDWithoutNeed(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: `
		unique_ids
		respond /ask {unique_id}
		respond hello`})
	ask := func() uint16 {
		id, err := uniqueid.ParseUniqueID(c.get("/ask").Want(t, http.StatusOK).Text)
		check(t, err)
		return id.Fields().Counter
	}
	before := ask()
	for range 10 {
		c.get("/").Want(t, http.StatusOK)
	}
	if after := ask(); after != before+1 {
		t.Errorf("the count went from %d to %d", before, after)
	}
}
