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

func TestLayoutsAndNodes(t *testing.T) {
	for _, test := range []struct {
		options string
		layout  uniqueid.Layout
		field   string // that must show in the reading
	}{
		{"layout classic\nnode 192.0.2.7", uniqueid.Classic, "address:192.0.2.7"},
		{"layout threaded\nnode 192.0.2.7", uniqueid.Threaded, "address:192.0.2.7"},
		{"layout modern", uniqueid.Modern, "root:"},
		{"node random", uniqueid.Classic, ""},
	} {
		t.Run(strings.ReplaceAll(test.options, "\n", " "), func(t *testing.T) {
			_, url := idsSite(t, test.options, "{unique_id} {unique_id}")
			first, second := fields2(t, ask(t, url))
			if first != second {
				t.Errorf("two IDs in one request: %s and %s", first, second)
			}
			if again, _ := fields2(t, ask(t, url)); again == first {
				t.Errorf("the same ID in two requests: %s", first)
			}
			if len(first) != test.layout.TextLen() {
				t.Errorf("%q has %d characters, want %d", first, len(first), test.layout.TextLen())
			}
			if got := readings(t, first); !strings.Contains(got, test.field) {
				t.Errorf("%q reads as %s, want %s", first, got, test.field)
			}
		})
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

func readings(t *testing.T, id string) string {
	t.Helper()
	all, err := uniqueid.Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, reading := range all {
		for _, field := range reading.Fields {
			fmt.Fprintf(&text, "%s:%v ", field.Name, field.Value)
		}
	}
	return text.String()
}

// A reload must not make a second generator of the same node: its counter
// would start anew, and could repeat IDs of the same second.
func TestUniqueIDsGoOnThroughReloads(t *testing.T) {
	addr := testcaddy.ReserveAddr(t)
	config := func(comment string) string {
		return "http://" + addr + " {\n\tunique_ids {\n\t\tnode 192.0.2.7\n\t}\n\theader X-Config " + comment + "\n\trespond {unique_id}\n}\n"
	}
	server := testcaddy.Start(t, config("0"))
	last := counterOf(t, ask(t, "http://"+addr))
	for i := range 5 {
		server.Reload(config(fmt.Sprint(i + 1)))
		counter := counterOf(t, ask(t, "http://"+addr))
		if counter != last+1 {
			t.Errorf("counter %d after %d; want the next", counter, last)
		}
		last = counter
	}
}

func counterOf(t *testing.T, id string) uint16 {
	t.Helper()
	u, err := uniqueid.ParseUniqueID(id)
	if err != nil {
		t.Fatal(err)
	}
	return u.Fields().Counter
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
