//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// idsSite starts a server that answers with IDs.
func idsSite(t *testing.T, options, response string) *caddy {
	t.Helper()
	return start(t, setup{servers: "trusted_proxies static 127.0.0.1/32", site: "unique_ids {\n" + options + "\n}\nrespond \"" + response + "\""})
}

// ask sends a request with header fields, given as names and values in turn, which may repeat.
func (c *caddy) ask(header ...string) (text string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url, nil)
	check(c.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	return testcaddy.Do(http.DefaultClient, r).Want(c.t, http.StatusOK).Text
}

// Layout, node and shards show in the IDs, of which a request has one of each kind.
func TestLayoutsNodesAndShards(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ options, id, reading string }{
		{"layout classic\nnode 192.0.2.7", "{unique_id}", "classic [{address 192.0.2.7}"},
		{"layout threaded\nnode 192.0.2.7", "{unique_id}", "threaded [{address 192.0.2.7}"},
		{"layout modern", "{unique_id}", "modern [{root"},
		{"node random", "{unique_id}", "classic [{"},
		{"shards 12", "{http.request.sharded_id}", " [{shard "},
	} {
		c := idsSite(t, test.options, test.id+" "+test.id)
		first, second, _ := strings.Cut(c.ask(), " ")
		if again, _, _ := strings.Cut(c.ask(), " "); first != second || again == first {
			t.Errorf("%s: IDs %s and %s in one request, and %s in the next", test.options, first, second, again)
		}
		readings, err := uniqueid.Decode(first)
		if err != nil || !strings.HasPrefix(fmt.Sprint(readings[0].Layout, " ", readings[0].Fields), test.reading) {
			t.Errorf("%s: %s reads as %+v, %v; expected %s", test.options, first, readings, err, test.reading)
		}
		if _, err := uniqueid.ParseShardedIDOf(first, 12); test.options == "shards 12" && err != nil {
			t.Error(err)
		}
	}
}
