//go:build unix

package integration_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// oneOfEach is a text with one ID of each kind.
var oneOfEach = regexp.MustCompile(`^[0-9a-v]{20} [A-Za-z0-9@-]{19} [0-9a-f]{18} [0-9A-Za-z]{8}$`)

// A request has the same IDs wherever they are used.
func TestIDsStayTheSame(t *testing.T) {
	t.Parallel()
	const idText = "{http.request.txid} {unique_id} {http.request.sharded_id} {http.request.call_number}"
	const idBody = `respond "` + idText + `"`
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Ids"))
	}))
	for _, test := range []struct{ name, more, site string }{
		{"as it is", "", idBody},
		{"rewrite", "", "rewrite /elsewhere?{query}\nroute /elsewhere {\n" + idBody + "\n}"},
		{"error routes", "", "handle {\nerror 418\n}\nhandle_errors {\n" + idBody + "\n}"},
		{"named route", "&(named) {\n" + idBody + "\n}", "invoke named"},
		{"subroute", "", "route {\nunique_ids {\nlayout modern\n}\nhandle {\n" + idBody + "\n}\n}"},
		{"behind a queue", "", "serialize {\npath {$DIR}\n}\n" + idBody},
		{"at the upstream", "", "reverse_proxy {$UPSTREAM} {\nheader_up X-Ids \"" + idText + "\"\n}"},
	} {
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
				if r.Err != nil || r.Text != ids || seen[ids] || !oneOfEach.MatchString(ids) {
					t.Fatalf("answered %v", r)
				}
				seen[ids] = true
				c.awaitAccess(r.Header.Get("X-Request-Id"))
			}
		})
	}
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
	for name, test := range map[string]struct {
		site   string
		status int
	}{
		"error":         {"error broken 503", http.StatusServiceUnavailable},
		"upstream down": {"reverse_proxy 127.0.0.1:1", http.StatusBadGateway},
		"refused":       {behindQueue("queue_length 1"), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: "unique_ids\nlog\nheader X-Request-Id {http.request.txid}\n" + test.site})
			if name == "refused" {
				c.holder(t)
				c.waiter("waiter", 2)
			}
			txid := c.get("/").Want(t, test.status).Header.Get("X-Request-Id")
			_, err := uniqueid.ParseTXID(txid)
			check(t, err)
			c.awaitAccess(txid)
			c.awaitEntry("the error log has err_id "+txid, func(e entry) bool {
				return strings.HasPrefix(e.Text("logger"), "http.log.error") && e.Text("err_id") == txid
			})
			if name == "refused" {
				if line := c.wantRefusalLogged("queue_full", "serializer_"); line.Text("txid") != txid {
					t.Errorf("the log of the refusal has the txid %q, want %q", line.Text("txid"), txid)
				}
			}
		})
	}
}

// A request that uses no ID makes none: unique_ids count, and none is missing in between. A
// reload goes on counting. With a new generator of the same node, IDs of the same second
// could repeat.
func TestNoIDWithoutNeed(t *testing.T) {
	t.Parallel()
	site := func(round int) setup {
		return setup{site: fmt.Sprintf("unique_ids {\nnode 192.0.2.7\n}\nheader X-Round %d\nrespond /ask {unique_id}\nrespond hello", round)}
	}
	c := start(t, site(0))
	var last uint16
	for round := 1; round < 7; round++ {
		id, err := uniqueid.ParseUniqueID(c.get("/ask").Want(t, http.StatusOK).Text)
		check(t, err)
		if counter := id.Fields().Counter; round > 1 && counter != last+1 {
			t.Errorf("the count went from %d to %d", last, counter)
		}
		last = id.Fields().Counter
		for range 3 {
			c.get("/").Want(t, http.StatusOK)
		}
		check(t, c.reload(site(round)))
	}
}
