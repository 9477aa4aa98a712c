package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// idsSite starts a server that answers with IDs, and returns its URL.
func idsSite(t *testing.T, options, response string, env ...string) (*testcaddy.Server, string) {
	t.Helper()
	addr := testcaddy.ReserveAddr(t)
	server := testcaddy.Start(t, `{
	admin {$ADMIN}
	storage file_system {$STORE:`+t.TempDir()+`}
	servers {
		trusted_proxies static 127.0.0.1/32
	}
}
http://`+addr+` {
	unique_ids {
		`+options+`
	}
	respond "`+response+`"
}
`, env...)
	return server, "http://" + addr + "/"
}

// ask sends a request with header fields, given as names and values in turn. A
// server that a reload has replaced may still close a connection before it reads
// from it; then it is sent again.
func ask(t *testing.T, url string, header ...string) (text string) {
	t.Helper()
	wait.Eventually(t, "the request is answered", func() (err error) {
		text, err = tryAsk(t, url, header...)
		return err
	})
	return text
}

func tryAsk(t *testing.T, url string, header ...string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	a := testcaddy.Do(http.DefaultClient, r)
	return a.Text, a.Err
}

// Layout and node show in the IDs, of which a request has one.
func TestLayoutsAndNodes(t *testing.T) {
	for _, test := range []struct{ options, reading string }{
		{"layout classic\nnode 192.0.2.7", "classic [{address 192.0.2.7}"},
		{"layout threaded\nnode 192.0.2.7", "threaded [{address 192.0.2.7}"},
		{"layout modern", "modern [{root"},
		{"node random", "classic [{"},
	} {
		_, url := idsSite(t, test.options, "{unique_id} {unique_id}")
		first, second := fields2(t, ask(t, url))
		if again, _ := fields2(t, ask(t, url)); first != second || again == first {
			t.Errorf("%s: IDs %s and %s in one request, and %s in the next", test.options, first, second, again)
		}
		readings, err := uniqueid.Decode(first)
		if err != nil || !strings.HasPrefix(fmt.Sprint(readings[0].Layout, " ", readings[0].Fields), test.reading) {
			t.Errorf("%s: %s reads as %+v, %v; expected %s", test.options, first, readings, err, test.reading)
		}
	}
}

// fields2 splits a text of two words.
func fields2(t *testing.T, text string) (string, string) {
	t.Helper()
	words := strings.Fields(text)
	if len(words) != 2 {
		t.Fatalf("got %q, want two words", text)
	}
	return words[0], words[1]
}

// A reload must not make a second generator of the same node: its counter
// would start anew, and could repeat IDs of the same second.
func TestUniqueIDsGoOnThroughReloads(t *testing.T) {
	addr := testcaddy.ReserveAddr(t)
	config := func(comment string) string {
		return "http://" + addr + " {\n\tunique_ids {\n\t\tnode 192.0.2.7\n\t}\n\theader X-Config " + comment + "\n\trespond {unique_id}\n}\n"
	}
	server := testcaddy.Start(t, config("0"))
	var last uint16
	for i := range 6 {
		server.Reload(config(fmt.Sprint(i + 1)))
		id, err := uniqueid.ParseUniqueID(ask(t, "http://"+addr))
		if err != nil {
			t.Fatal(err)
		}
		if counter := id.Fields().Counter; i > 0 && counter != last+1 {
			t.Errorf("counter %d after %d; want the next", counter, last)
		}
		last = id.Fields().Counter
	}
}

func TestShardedIDs(t *testing.T) {
	_, url := idsSite(t, "shards 12", "{http.request.sharded_id}")
	seen := make(map[string]bool)
	for range 100 {
		text := ask(t, url)
		if _, err := uniqueid.ParseShardedIDOf(text, 12); err != nil || seen[text] {
			t.Fatalf("%q: seen before: %t, %v", text, seen[text], err)
		}
		seen[text] = true
	}
}
