package recipes

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// as is the header of a user of the recipes.
func as(user string) []string {
	token := map[string]string{"anna": "YW5uYTphbm5hLXNlY3JldA==", "ben": "YmVuOmJlbi1zZWNyZXQ="}[user]
	return []string{"Authorization", "Basic " + token}
}

func TestOneAtATimeForEachUser(t *testing.T) {
	k := cook(t, "One at a time for each user")
	want(t, k.get(t, "nobody"), 401, "")
	first := k.get(t, "anna1", as("anna")...)
	anna := k.NextNamed("anna1")
	second := k.get(t, "anna2", as("anna")...)
	k.awaitTickets(t, "user_anna_", 2)
	third := k.get(t, "ben1", as("ben")...)
	k.NextNamed("ben1").Leave()
	want(t, third, 200, "served ben1")
	k.Nobody()
	anna.Leave()
	want(t, first, 200, "served anna1")
	k.NextNamed("anna2").Leave()
	want(t, second, 200, "served anna2")
}

func TestReadersAndWriters(t *testing.T) {
	k := cook(t, "Readers and writers")
	var answers []<-chan testcaddy.Answer
	for i, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
		answers = append(answers, testcaddy.Send(t, method, k.url+fmt.Sprint(i), ""))
		k.awaitTickets(t, "catalogue_", i+1)
	}
	readers := []*testcaddy.Visit{k.Next(), k.Next()}
	k.Nobody()
	for _, v := range readers {
		v.Leave()
	}
	writer := k.NextNamed("2")
	k.Nobody()
	writer.Leave()
	k.NextNamed("3").Leave()
	for _, a := range answers {
		want(t, a, 200, "")
	}
}

func TestNWorkers(t *testing.T) {
	k := cook(t, "N workers")
	var answers []<-chan testcaddy.Answer
	for i := range 7 {
		answers = append(answers, k.get(t, fmt.Sprint(i)))
		k.awaitTickets(t, "render_", i+1)
	}
	inside := []*testcaddy.Visit{k.Next(), k.Next(), k.Next(), k.Next()}
	k.Nobody()
	for i := 4; i < 7; i++ {
		inside[0].Leave()
		inside = append(inside[1:], k.NextNamed(fmt.Sprint(i)))
	}
	for _, v := range inside {
		v.Leave()
	}
	for _, a := range answers {
		want(t, a, 200, "served")
	}
	k.WantMost(4)
}

func TestWaitingRoom(t *testing.T) {
	k := cook(t, "A waiting-room page", "queue_length 20", "queue_length 2")
	var answers []<-chan testcaddy.Answer
	for i := range 3 {
		answers = append(answers, k.get(t, fmt.Sprint(i)))
		k.awaitTickets(t, "tickets_", i+1)
	}
	a := want(t, k.get(t, "3"), 503, "<p>3 others came before you, so there was no place for you.")
	if a.Header.Get("Refresh") != "10" || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page has the header %v", a.Header)
	}
	for i, answer := range answers {
		k.NextNamed(fmt.Sprint(i)).Leave()
		want(t, answer, 200, "served")
	}
}

func TestDefaultsForManySites(t *testing.T) {
	k := cook(t, "Defaults for many sites")
	first := k.get(t, "0")
	inside := k.NextNamed("0")
	var config struct {
		Apps struct {
			HTTP struct{ Servers map[string]any }
		}
	}
	text := k.Ask("/config/")
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	found := handlers(config.Apps.HTTP.Servers)
	if len(found) != 3 {
		t.Fatalf("there are %d handlers; expected 3 in %s", len(found), text)
	}
	for _, h := range found {
		switch h["prefix"] {
		case "one_":
			if h["queue_length"] != 100.0 || h["error_response"] == nil || h["timeout"] != 20e9 {
				t.Errorf("the first site has %v", h)
			}
		case "two_":
			if h["queue_length"] != 1.0 || h["error_response"] != nil || h["timeout"] != 20e9 {
				t.Errorf("the second site has %v", h)
			}
		default:
			if h["off"] != true {
				t.Errorf("there is a handler %v", h)
			}
		}
	}
	inside.Leave()
	want(t, first, 200, "served 0")
}

// handlers finds the serialize handlers of a configuration.
func handlers(node any) (found []map[string]any) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			found = append(found, handlers(child)...)
		}
	case map[string]any:
		if node["handler"] == "serialize" {
			return []map[string]any{node}
		}
		for _, child := range node {
			found = append(found, handlers(child)...)
		}
	}
	return found
}

func TestAccessLogFields(t *testing.T) {
	k := cook(t, "Fields in the access log", "queue_length 10", "queue_length 1")
	first := k.get(t, "0")
	inside := k.NextNamed("0")
	second := k.get(t, "1")
	k.awaitTickets(t, "app_", 2)
	want(t, k.get(t, "2"), 503, "")
	inside.Leave()
	k.NextNamed("1").Leave()
	want(t, first, 200, "")
	want(t, second, 200, "")
	var entries []map[string]any
	wait.Eventually(t, "all requests are logged", func() error {
		entries = nil
		for line := range strings.Lines(k.Log.String()) {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(fmt.Sprint(entry["logger"]), "http.log.access") {
				entries = append(entries, entry)
			}
		}
		if len(entries) != 3 {
			return fmt.Errorf("%d entries", len(entries))
		}
		return nil
	})
	for _, e := range entries {
		refused := e["status"] == 503.0
		// Bug: the wait was a text, which no log system can add up.
		if _, isNumber := e["queue_wait_ms"].(float64); !isNumber || e["queue"] != "app_" || e["txid"] == nil || refused != (e["queue_refused"] == "queue_full") || refused != (e["queue_token"] == nil) {
			t.Errorf("an entry is %v", e)
		}
	}
}

// Requests wait for files in mod_serializer's format. When such a file is
// removed, by hand or by its program, the next request enters.
func TestMovingFromModSerializer(t *testing.T) {
	k := cook(t, "Moving from mod_serializer")
	for _, path := range []string{"api/0", "api"} { // <Location /api> is both
		first := k.get(t, path)
		k.awaitTickets(t, "a_", 1)
		k.NextNamed(path).Leave()
		want(t, first, 200, "served "+path)
	}
	free := k.get(t, "other")
	k.NextNamed("other").Leave()
	want(t, free, 200, "served other")

	apache := lockfile.Name{Prefix: "a_", Number: uint64(time.Now().UnixMicro()), Client: netip.MustParseAddrPort("192.0.2.7:40000")}
	file := filepath.Join(k.dir, apache.String())
	testcaddy.WriteFile(t, file, "")
	second := k.get(t, "api/1")
	k.awaitTickets(t, "a_", 2)
	k.Nobody()
	out, errs, code := testcaddy.Output(t, "serialize", "queues", "--address", k.Admin)
	if code != 0 || !strings.Contains(out, "not a ticket of Orderly") || !strings.Contains(out, "192.0.2.7:40000") {
		t.Errorf("the command shows %d %s%s", code, out, errs)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	k.NextNamed("api/1").Leave()
	want(t, second, 200, "served api/1")
}

// A snippet does what merging does in Apache. TestLocations shows, with the
// same lines, that each location then has the settings of mod_serializer's
// document.
func TestLocationsWithinLocations(t *testing.T) {
	const heading = "Locations within locations"
	tested, err := os.ReadFile(filepath.Join("..", "caddyfile_adapt", "mod_serializer.caddyfiletest"))
	if err != nil {
		t.Fatal(err)
	}
	documented := strings.Replace(blocks(t, "recipes.md", heading, "caddyfile")[0], "example.com {", "http://:8080 {", 1)
	if !strings.Contains(string(tested), documented) {
		t.Errorf("the recipe is not the Caddyfile that TestLocations runs:\n%s", documented)
	}
	k := cook(t, heading, "/opt/serializer", filepath.Join(t.TempDir(), "queues"))
	first := testcaddy.Send(t, "POST", k.url+"a", "")
	inside := k.NextNamed("a")
	second := testcaddy.Send(t, "POST", k.url+"a/x", "")
	for _, other := range []string{"a/c/d", "ab", "a/b", "a/b/c/d"} { // not serialized, or queues of their own
		answer := testcaddy.Send(t, "POST", k.url+other, "")
		k.NextNamed(other).Leave()
		want(t, answer, 200, "served "+other)
	}
	k.Nobody()
	inside.Leave()
	want(t, first, 200, "served a")
	k.NextNamed("a/x").Leave()
	want(t, second, 200, "served a/x")
}

// Every Caddyfile of the recipes is run by one of these tests.
func TestEveryRecipeHasATest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../*/*_test.go") // that of traces needs more than this module
	if err != nil {
		t.Fatal(err)
	}
	var tests string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(source)
	}
	for line := range strings.Lines(string(text)) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
		if ok && !strings.Contains(tests, strconv.Quote(heading)) {
			t.Errorf("no test runs the recipe %q", heading)
		}
	}
}
