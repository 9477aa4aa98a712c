package uniqueids_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// idsSite starts a server that answers with IDs, and returns its URL.
func idsSite(t *testing.T, options, response string, env ...string) (*testcaddy.Server, string) {
	t.Helper()
	addr := testcaddy.FreeAddr(t)
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
	testcaddy.Eventually(t, "the request is answered", func() (err error) {
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
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
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
	addr := testcaddy.FreeAddr(t)
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
	return u.Counter()
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

func TestTrust(t *testing.T) {
	_, url := idsSite(t, "trust X-Request-Id", "{http.request.txid}|{header.X-Request-Id}")
	long := strings.Repeat("a", 128)
	for _, test := range []struct {
		name, value string
		kept        bool
	}{
		{"an ID", "abc-DEF_1.2@x", true},
		{"one character", "a", true},
		{"128 characters", long, true},
		{"129 characters", long + "a", false},
		{"200 characters", strings.Repeat("b", 200), false},
		{"empty", "", false},
		{"a space", "a b", false},
		{"a tab", "a\tb", false},
		{"beyond ASCII", "aé", false},
		{"a quote", `a"b`, false},
		{"braces", "{env.HOME}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkTrusted(t, ask(t, url, "X-Request-Id", test.value), test.value, test.kept)
		})
	}
	t.Run("two values", func(t *testing.T) {
		checkTrusted(t, ask(t, url, "X-Request-Id", "a", "X-Request-Id", "b"), "a", false)
	})
}

func checkTrusted(t *testing.T, answer, value string, kept bool) {
	t.Helper()
	txid, header, _ := strings.Cut(answer, "|")
	if kept {
		if txid != value || header != value {
			t.Errorf("txid %q, header %q; want both %q", txid, header, value)
		}
		return
	}
	if _, err := uniqueid.ParseTXID(txid); err != nil {
		t.Errorf("txid %q: %v", txid, err)
	}
	if header != "" {
		t.Errorf("what is behind sees the header %q", header)
	}
}

func TestNobodyIsTrustedByDefault(t *testing.T) {
	addr := testcaddy.FreeAddr(t)
	testcaddy.Start(t, "http://"+addr+" {\n\tunique_ids {\n\t\ttrust X-Request-Id\n\t}\n\trespond {http.request.txid}|{header.X-Request-Id}\n}\n")
	checkTrusted(t, ask(t, "http://"+addr, "X-Request-Id", "abc"), "abc", false)
}

// A second unique_ids on the way did nothing at all: a stranger's value of the
// header field that it is to trust got to what is behind.
func TestInnerTrustStripsStrangersHeader(t *testing.T) {
	addr := testcaddy.FreeAddr(t)
	server := testcaddy.Start(t, `http://`+addr+` {
	route {
		unique_ids
		handle /own* {
			request_header X-Request-Id {http.request.txid}
		}
		unique_ids {
			trust X-Request-Id
		}
		respond {http.request.txid}|{header.X-Request-Id}
	}
}
`)
	checkTrusted(t, ask(t, "http://"+addr, "X-Request-Id", "abc"), "abc", false)
	if txid, header, _ := strings.Cut(ask(t, "http://"+addr+"/own", "X-Request-Id", "abc"), "|"); header != txid {
		t.Errorf("the header field with the txid %s became %q", txid, header)
	}
	testcaddy.Eventually(t, "the log says that the second has no say", func() error {
		if !strings.Contains(server.Log(), "unique_ids before it has named the request") {
			return errors.New("it does not")
		}
		return nil
	})
}

func TestCallNumbers(t *testing.T) {
	store := t.TempDir()
	seen := make(map[string]bool)
	collect := func(url string, n int) (run uint32) {
		for range n {
			text := ask(t, url)
			number, err := uniqueid.ParseCallNumber(text)
			if err != nil || seen[text] {
				t.Fatalf("%q: seen before: %t, %v", text, seen[text], err)
			}
			seen[text] = true
			run = number.Run()
		}
		return run
	}
	server, url := idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	first := collect(url, 20)
	server.Kill()
	_, url = idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	if second := collect(url, 20); second <= first {
		t.Errorf("run %d after run %d; want a greater one after a kill", second, first)
	}
	_, url = idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	if third := collect(url, 20); third <= first+1 {
		t.Errorf("run %d; want one of its own for each process", third)
	}
}

// Those who have used call numbers before start above them: the documented
// ways to store the next run.
func TestCallNumbersStartAtRun(t *testing.T) {
	t.Run("in files", func(t *testing.T) {
		store := t.TempDir()
		next := filepath.Join(store, "orderly", "call_numbers", "next_run")
		if err := os.MkdirAll(filepath.Dir(next), 0o700); err != nil {
			t.Fatal(err)
		}
		testcaddy.WriteFile(t, next, "8453\n")
		wantFirstRun(t, store, 8453)
	})
	t.Run("by import", func(t *testing.T) {
		store, dir := t.TempDir(), t.TempDir()
		config, input := filepath.Join(dir, "caddy.json"), filepath.Join(dir, "runs.tar")
		testcaddy.WriteFile(t, config, `{"storage":{"module":"file_system","root":"`+store+`"}}`)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: "orderly/call_numbers/next_run", Mode: 0o600, Size: 5}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "8453\n"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		testcaddy.WriteFile(t, input, archive.String())
		if _, errs, code := testcaddy.Output(t, "storage", "import", "--config", config, "--input", input); code != 0 {
			t.Fatalf("caddy storage import: exit code %d: %s", code, errs)
		}
		wantFirstRun(t, store, 8453)
	})
}

func wantFirstRun(t *testing.T, store string, want uint32) {
	t.Helper()
	_, url := idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	number, err := uniqueid.ParseCallNumber(ask(t, url))
	if err != nil || number.Run() != want || number.Sequence() != 0 {
		t.Errorf("the first number is of run %d, sequence %d, %v; expected run %d", number.Run(), number.Sequence(), err, want)
	}
}

// With the storage gone, requests that ask for a call number get none, the log
// says why, and nothing else suffers. When it is back, so are the numbers.
func TestCallNumbersWithoutStorage(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	next := filepath.Join(store, "orderly", "call_numbers", "next_run")
	if err := os.MkdirAll(filepath.Dir(next), 0o755); err != nil {
		t.Fatal(err)
	}
	testcaddy.WriteFile(t, next, "spilled coffee")
	server, url := idsSite(t, "", "{http.request.call_number}|{http.request.txid}", "STORE="+store)
	answer := ask(t, url)
	number, txid, _ := strings.Cut(answer, "|")
	if _, err := uniqueid.ParseTXID(txid); err != nil || number != "" {
		t.Errorf("got %q, want no call number, and a txid", answer)
	}
	server.Eventually("the log says why", func() error {
		if log := server.Log(); !regexp.MustCompile(`requests get no call number.*spilled coffee`).MatchString(log) {
			return fmt.Errorf("log:\n%s", log)
		}
		return nil
	})
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	server.Eventually("there are numbers again", func() error {
		if answer := ask(t, url); strings.HasPrefix(answer, "|") {
			return fmt.Errorf("got %q", answer)
		}
		return nil
	})
}

func TestIDsCommand(t *testing.T) {
	for _, test := range []struct {
		args   []string
		stdin  string
		code   int
		stdout string // a pattern
		stderr string // a pattern
	}{
		{[]string{"new"}, "", 0, `^[0-9a-v]{20}\n$`, ``},
		{[]string{"new", "-n", "3", "--scheme", "unique_id"}, "", 0, `^([A-Za-z0-9@-]{19}\n){3}$`, ``},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "4"}, "", 0, `^[0-3][0-9a-f]{17}\n$`, ``},
		{[]string{"new", "--scheme", "call_number", "-n", "2"}, "", 0, `^00000000\n00bVJxYW\n$`, ``},
		{[]string{"new", "--scheme", "uuid"}, "", 1, `^$`, `--scheme "uuid": expected txid, unique_id, sharded_id, call_number or uuid_v7`},
		{[]string{"new", "--scheme", "uuid_v7", "-n", "2"}, "", 0, `^([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n){2}$`, ``},
		{[]string{"decode", "018bcfe5-687b-7048-b456-789abcd54321"}, "", 0, `scheme\s+uuid_v7\n\s+time\s+2023-11-14T22:13:20.123Z(.|\n)*txid\s+cbpvimguo4hkaps9lf6g`, ``},
		{[]string{"decode", "00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03"}, "", 0,
			`scheme\s+traceparent\n\s+time\s+2023-11-14T22:13:20.123Z(.|\n)*txid\s+cbpvimguo4hkaps9lf6g`, ``},
		{[]string{"decode", "cbpvimguo4hkaps9lf6g"}, "", 0, `uuid_v7_first\s+018bcfe5-687b-7048-b456-789abcd00000\n`, ``},
		{[]string{"decode", "018bcfe5687b7048b456789abcd54321"}, "", 0, `has 2 readings(.|\n)*uuid_v7(.|\n)*trace_id`, ``},
		// With another scheme, --shards was ignored.
		{[]string{"new", "--shards", "4"}, "", 1, `^$`, `--shards is for --scheme sharded_id; a txid has no shard`},
		{[]string{"new", "--scheme", "uuid", "--shards", "4"}, "", 1, `^$`, `--scheme "uuid": expected txid`},
		{[]string{"new", "--scheme", "traceparent"}, "", 1, `^$`, `--scheme "traceparent": expected txid`},
		// An ID that begins with a hyphen was called an unknown flag, and no more.
		{[]string{"decode", "------------------8"}, "", 1, `^$`, `begins with a hyphen write --, as in: caddy ids decode -- ID`},
		{[]string{"decode", "-FobLMCoAQoAADA5AQI"}, "", 1, `^$`, `as in: caddy ids decode -- ID`},
		{[]string{"decode", "--json", "--", "------------------8"}, "", 0, `"layout":"classic"`, ``},
		{[]string{"decode"}, "------------------8\n", 0, `layout classic`, ``},
		{[]string{"new", "-n", "0"}, "", 1, `^$`, `-n 0: expected 1 or more`},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "0"}, "", 1, `^$`, `--shards 0`},
		{[]string{"decode", "cbpvimguo4hkaps9lf6g"}, "", 0, `scheme\s+txid\n\s+time\s+2023-11-14T22:13:20.123Z\n\s+random\s+0123456789abcd`, ``},
		{[]string{"decode", "PFobLMCoAQoAADA5AQI"}, "", 0, `layout classic\n\s+time\s+2002-02-01T04:35:56Z\n\s+address\s+192.168.1.10`, ``},
		{[]string{"decode", "W4kEeX8AAQEAAHUu-mgAAAAA"}, "", 0, `layout threaded(.|\n)*pid\s+29998`, ``},
		{[]string{"decode", "ZFJGec8R3U_ldaMTbxzC3wAAAAM"}, "", 0, `layout modern(.|\n)*thread\s+3`, ``},
		{[]string{"decode", "03KOE60u"}, "", 0, `run\s+8452\n\s+sequence\s+11827`, ``},
		{[]string{"decode", "a_0000160969386537851501000036794192.168.0.1"}, "", 0,
			`scheme\s+lock_file\n\s+time\s+2021-01-03T17:11:05.378515Z\n\s+prefix\s+a_\n\s+token\s+1609693865378515\n\s+client\s+192.168.0.1:36794`, ``},
		{[]string{"decode"}, "03KOE60u\n\nnonsense\n2VznWE2i\n", 1, `8452(.|\n)*sequence\s+345`, `nonsense(.|\n)*1 of the IDs could not be read`},
		{[]string{"decode", "--json"}, "2VznWE2i\n", 0, `^{"id":"2VznWE2i","readings":\[{.*"run":99,"sequence":345.*\]}\n$`, ``},
		{[]string{"decode", ""}, "", 1, `^$`, `parsing id ""`},
		{[]string{"decode", "ZFJGec8R3U-ldaMTbxzC3wAAAAM"}, "", 0, `has 2 readings(.|\n)*2.4.29 to 2.4.46`, ``},
		{[]string{"decode", "PFobLP@oAQoAADA5AQI"}, "", 0, `node\s+ffa8010a00003039(.|\n)*random bits`, ``},
		// Eighteen characters of lower-case hex are a sharded_id; twenty can be a txid, too.
		{[]string{"decode", "12300aa4aa5c7f2c2d50"}, "", 0, `has 2 readings(.|\n)*sharded_id(.|\n)*txid`, ``},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			cmd := testcaddy.Command(t, append([]string{"ids"}, test.args...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(test.stdin), &stdout, &stderr
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !regexp.MustCompile(test.stdout).Match(stdout.Bytes()) {
				t.Errorf("printed %q, want %s", &stdout, test.stdout)
			}
			if !regexp.MustCompile(test.stderr).Match(stderr.Bytes()) {
				t.Errorf("complained %q, want %s", &stderr, test.stderr)
			}
		})
	}
}

// The real mod_unique_id of Debian's Apache: its IDs, taken over HTTP, read
// back as the modern layout with the time of the request.
func TestDecodeApachesIDs(t *testing.T) {
	apache := testcaddy.Need(t, "apache2", "apt-get install apache2")
	addr, dir := testcaddy.FreeAddr(t), t.TempDir()
	config := filepath.Join(dir, "apache2.conf")
	testcaddy.WriteFile(t, config, `
ServerRoot /usr/lib/apache2
ServerName localhost
Listen `+addr+`
PidFile `+dir+`/pid
DefaultRuntimeDir `+dir+`
ErrorLog `+dir+`/error.log
DocumentRoot `+dir+`
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule unique_id_module modules/mod_unique_id.so
LoadModule headers_module modules/mod_headers.so
User www-data
Group www-data
Header always set X-Unique-Id "%{UNIQUE_ID}e"
`)
	server := testcaddy.Daemon(t, apache, "-X", "-f", config)
	var id string
	testcaddy.Eventually(t, "apache answers", func() error {
		if server.Ended() {
			t.Fatalf("apache ended:\n%s", server.Output())
		}
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		id = resp.Header.Get("X-Unique-Id")
		return nil
	})
	readings, err := uniqueid.Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	// Apache before 2.4.47 used another alphabet, and an ID with a "-" but no "_"
	// may be of either.
	if !slices.ContainsFunc(readings, func(d uniqueid.Decoded) bool {
		age := testcaddy.Age(d.Time)
		return d.Layout == "modern" && age >= -1 && age <= 60
	}) {
		t.Errorf("%q, made just now, reads as %+v", id, readings)
	}
}
