//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// Each line in the block of a directive is refused with the error, which names its place.
// Settings of one kind share the code that reads them: one of them shows its errors.
func TestCaddyfileErrors(t *testing.T) {
	letters := strings.Split("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-+", "") // 65
	tests := []struct {
		directive string // empty if the text is not of its block
		text      string
		says      string
	}{
		{"serialize", `buffer 64KiB 2TiB`, `buffer: size "2TiB": expected a number of bytes up to 1TiB, such as 64KiB`},
		{"serialize", `buffer off 1MiB`, `buffer off: unexpected 1048576 bytes on disk; nothing is kept there`}, // bug: it was accepted
		{"serialize", `buffer 64KiB off`, `buffer_disk off: expected a size from 0 to 1TiB, such as 256MiB`},
		{"serialize", `buffer 64 KiB 1MiB`, `buffer: found 3 values; expected a size such as 64KiB, and perhaps one on disk such as 256MiB, or off`},
		{"serialize", `buffer 2GiB`, `buffer 2147483648: expected a size from 0 to 1GiB, such as 64KiB, or off, which is -1 in JSON`},
		{"serialize", `concurrency 0`, `concurrency 0: expected a whole number, 1 or more`},
		{"serialize", `dry_run on`, `dry_run: unexpected "on"; it has no value`},
		{"serialize", `engine memory fast`, `engine memory: unexpected "fast"; it has no options`},
		{"serialize", "engine etcd {\nendpoints http://localhost:2379\n}", `engine etcd is a module of its own, and this Caddy was built without it; in a checkout, run go build ./modules/etcd/cmd/caddy; elsewhere, xcaddy build --with github.com/orderly-http/caddy-orderly --with github.com/orderly-http/caddy-orderly/modules/etcd`},
		{"serialize", `engine`, `engine: no value; expected a name: file, memory`},
		{"serialize", `engine consul`, `engine "consul": there is none of this name; expected one of file, memory`},
		{"serialize", `engine redis://:secret@a`, `engine (not shown, since it may have a password): there is none of this name; expected one of file, memory`},
		{"serialize", `error_code 600`, `error_code 600: expected a status from 400 to 599`},
		{"serialize", `error_response text/plain ""`, `error_response: expected a MIME type and a body; leave both blank to take an earlier one back`},
		{"serialize", `error_response text/plain two words`, `error_response: found 3 values; expected a MIME type and a body`},
		{"serialize", `hold_at_least 366d`, `hold_at_least 8784h0m0s: expected a duration of 8760h0m0s or less, such as 15s`},
		{"serialize", `hold_at_least`, `hold_at_least: found 0 values; expected a duration of 1ms or more with a unit, such as 60s or 5m`},
		{"serialize", `hold_at_least 0`, `hold_at_least 0s: expected a duration of 1ms or more, such as 60s`},
		{"serialize", `hold_at_least 5us`, `hold_at_least 5µs: expected a duration of 1ms or more; in JSON, a number is nanoseconds: write a text such as "30s"`},
		{"serialize", `hold_at_least six`, `hold_at_least "six": expected a duration of 1ms or more with a unit, such as 60s or 5m`},
		{"serialize", "hold_at_least 6s\nshared_methods GET", `hold_at_least: it cannot be combined with shared_methods; expected one of the two`},
		{"serialize", `keepalive 10ms`, `keepalive 10ms: expected a duration of 1s or more, such as 60s`},
		{"serialize", `keepalive often`, `keepalive "often": expected a duration of 1s or more with a unit, such as 60s or 5m`},
		{"serialize", `keepalive 1m 2m`, `keepalive: unexpected "2m" after another interval; expected one`},
		{"serialize", `keepalive 5us`, `keepalive 5µs: expected a duration of 1s or more; in JSON, a number is nanoseconds: write a text such as "30s"`},
		{"serialize", "keepalive\nbuffer off", "keepalive: a client that still sends its body gets no event stream; expected a buffer with a size, not `buffer off`"},
		{"serialize", `visit`, `visit: found 0 values; expected for how long a browser may be idle, such as 5m, and perhaps the longest visit, such as 30m`},
		{"serialize", `visit 0`, `visit 0s: expected a duration of 1ms or more, such as 60s`},
		{"serialize", `visit 5m`, `visit: browsers need the page while they wait; expected waiting_page, too`},
		{"serialize", `on_disconnect stop`, `on_disconnect "stop": expected finish or cancel`},
		// Bug: the first two were accepted, and the others got an error that did not say what a matcher is.
		{"serialize", `timeout 30ns`, `timeout 30ns: expected a duration of 1ms or more, or 0; in JSON, a number is nanoseconds: write a text such as "30s"`},
		{"serialize", `path /api/*`, `path "/api/*": expected a directory, which has no *; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"", `serialize *.php`, `serialize: unexpected argument "*.php"; expected off, a prefix without / and *, or a block; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"", `serialize off /api/*`, `serialize: unexpected argument "/api/*"; expected a block; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"", `unique_ids *.php`, `unique_ids: unexpected argument "*.php"; expected a block; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"serialize", `path " "`, `path: expected a directory; leave path out for the default, queues in Caddy's data directory`},
		{"serialize", `path var/queues`, `path "var/queues": expected an absolute path, such as /var/lib/caddy/queues; a relative one depends on where Caddy is started`},
		{"serialize", `prefix a00007`, `prefix "a00007": it must not end in four zeros and a digit, for that is how timestamps start`},
		{"serialize", "prefix `a\\b_`", `prefix "a\\b_": expected a text without a path separator; the directory is set by path`},
		{"serialize", `prefix ""`, `prefix: expected a text; leave prefix out for serializer_`},
		{"serialize", `queue_length 1 2`, `queue_length: found 2 values; expected a whole number, 0 or more`},
		{"serialize", `response_buffer off`, `response_buffer off: expected a size from 0 to 1GiB, such as 256KiB`},
		{"", `serialize shop_ now`, `serialize: unexpected argument "now"; expected a block`},
		{"", `serialize shop_ @api`, `serialize: unexpected argument "@api"; expected a block; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"", `serialize shop_/{host}`, `serialize: unexpected argument "shop_/{http.request.host}"; expected off, a prefix without / and *, or a block; a matcher begins with /, is * alone or begins with @, and stands first, after the directive`},
		{"serialize off", `timeout 10s`, `serialize off: unexpected "timeout"; a location that is not serialized has no options`},
		{"serialize_status /queues", `controls http://queues.example/`, `controls http://queues.example/: expected names of hosts, such as status.example.com`},
		{"serialize_status /queues", `controls off`, `controls off: expected names of hosts, such as status.example.com`},
		{"serialize_status /queues", `refresh 1s`, `serialize_status: unknown subdirective "refresh"; expected controls`},
		{"serialize", `que_len 10`, `serialize: unknown subdirective "que_len"; expected one of path, prefix, skip_methods, timeout, queue_length, when_full, error_code, error_response, concurrency, slots, shared_methods, hold_timeout, hold_at_least, on_disconnect, buffer, response_buffer, waiting_page, visit, keepalive, dry_run, engine`},
		{"serialize", `slots`, `slots: no value; expected 1 to 64 distinct names, such as addresses of servers`},
		{"serialize", `slots a " "`, `slots: found ["a" " "]; expected 1 to 64 distinct names, such as addresses of servers`},
		{"serialize", "slots " + strings.Join(letters, " "), fmt.Sprintf("slots: found %q; expected 1 to 64 distinct names, such as addresses of servers", letters)},
		{"serialize", "concurrency 2\nslots a b", `slots: it cannot be combined with concurrency; expected one of the two`},
		{"serialize", "slots a b\nshared_methods GET", `slots: it cannot be combined with shared_methods; expected one of the two`},
		{"serialize", "slots a b\nskip_methods GET", `slots: it cannot be combined with skip_methods; expected one of the two`},
		{"serialize", "slots a b\ndry_run", `slots: it cannot be combined with dry_run; expected one of the two`},
		{"serialize", `skip_methods`, `skip_methods: no value; expected request methods such as GET, separated by spaces or commas`},
		{"serialize", `skip_methods GET /a`, `skip_methods: "/A" is not a request method; expected names such as GET, separated by spaces or commas`},
		{"serialize", `hold_timeout`, `hold_timeout: found 0 values; expected a duration of 0s or more with a unit, such as 60s or 5m`},
		{"serialize", `timeout`, `timeout: found 0 values; expected a duration such as 60s, and perhaps a text such as {http.request.header.X-Request-Timeout}`},
		{"serialize", `timeout {header.X-Timeout} 5m`, `timeout "{http.request.header.X-Timeout}": expected a duration of 0s or more with a unit, such as 60s or 5m`},
		{"serialize", `timeout 5m X-Request-Timeout`, `timeout: "X-Request-Timeout" has no placeholder; expected a text such as {http.request.header.X-Request-Timeout}`},
		{"", `unique_ids threaded`, `unique_ids: unexpected argument "threaded"; expected a block`},
		{"unique_ids", `layout short`, `layout "short": expected classic, threaded or modern`},
		{"unique_ids", `node web1`, `node "web1": expected auto, random or an IPv4 address`},
		{"unique_ids", `shards 100000000000`, `shards 100000000000: expected a whole number from 1 to 1000000`},
		{"unique_ids", `trust "X Request Id"`, `trust "X Request Id": expected the name of a request header field, such as X-Request-Id`},
		{"unique_ids", `header`, `header: found 0 values; expected the name of a header field, such as X-Request-Id, and perhaps a kind of ID`},
		{"unique_ids", `header "X Request Id"`, `header "X Request Id": expected the name of a header field for an ID, such as X-Request-Id`},
		{"unique_ids", `header content-length`, `header "content-length": expected the name of a header field for an ID, such as X-Request-Id`},
		{"unique_ids", `header X-Request-Id uuid`, `header X-Request-Id "uuid": expected one of the kinds txid, unique_id, sharded_id, call_number, uuid_v7, trace_id, traceparent`},
		{"unique_ids", `header traceparent`, `header traceparent txid: W3C Trace Context has another text in this field; expected header traceparent traceparent`},
		{"unique_ids", `header tracestate trace_id`, `header tracestate trace_id: W3C Trace Context has another text in this field; expected header traceparent traceparent`},
		{"unique_ids", `length 12`, `unique_ids: unknown subdirective "length"; expected one of layout, node, shards, trust, header`},
		{"serialize", `waiting_page 5s`, `waiting_page: unexpected argument "5s"; expected a block`},
		{"serialize", "waiting_page {\nfile\n}", `file: found 0 values; expected the path of a page`},
		{"serialize", "waiting_page {\nhold 500ms\n}", `hold 500ms: expected a duration of 1s or more, such as 60s`},
		{"serialize", "waiting_page {\nbefore 5s\n}", `waiting_page: unknown subdirective "before"; expected one of after, hold, file, status, json, opens`},
		{"serialize", "waiting_page {\nopens\n}", `opens: found 0 values; expected a moment as in RFC 3339, such as 2026-11-27T10:00:00+01:00, and perhaps a text such as {http.vars.client_ip}`},
		{"serialize", "waiting_page {\nopens 10:00\n}", `opens "10:00": expected a moment as in RFC 3339, such as 2026-11-27T10:00:00+01:00`},
		{"serialize", "waiting_page {\nstatus 404\n}", `status 404: expected 200, 202, 429 or 503`},
		{"serialize", `when_full drop_oldest`, `when_full drop_oldest: it needs a queue_length of 1 or more; with 1, the latest request wins`},
		{"serialize", "when_full drop_all\nqueue_length 1", `when_full "drop_all": expected drop_newest or drop_oldest`},
	}
	at := regexp.MustCompile(`, at Caddyfile:\d+$`)
	for _, test := range tests {
		text := test.text
		if test.directive != "" {
			text = test.directive + " {\n" + test.text + "\n}"
		}
		got := adapt("http://:8080 {\n" + text + "\n}\n")
		if !at.MatchString(got) || !strings.HasSuffix(at.ReplaceAllString(got, ""), test.says) {
			t.Errorf("%s\nis adapted to\n%s\nwant the error\n%s", text, got, test.says)
		}
	}
}

// Each file in caddyfile_adapt is a Caddyfile, ten dashes, and the JSON that it
// is adapted to, or the error in full.
const (
	adaptDir  = "caddyfile_adapt"
	adaptLine = "----------"
)

func TestCaddyfileAdapt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(adaptDir, "*.caddyfiletest"))
	check(t, err)
	if len(files) == 0 {
		t.Fatal("no files to test")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			check(t, err)
			caddyfile, want, ok := strings.Cut(string(text), adaptLine)
			if !ok {
				t.Fatalf("no line of ten dashes")
			}
			got, want := adapt(caddyfile), strings.TrimSpace(want)
			if strings.HasPrefix(got, "{") && strings.HasPrefix(want, "{") {
				var gotValue, wantValue any
				decodeInto(t, got, &gotValue)
				if decodeInto(t, want, &wantValue); reflect.DeepEqual(gotValue, wantValue) {
					return
				}
			}
			if got != want {
				t.Errorf("adapted to\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// adapt returns what a Caddyfile is adapted to, or the error.
func adapt(caddyfile string) string {
	result, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		return err.Error()
	}
	return string(result)
}

func decodeInto(t testing.TB, text string, value any) {
	t.Helper()
	check(t, json.Unmarshal([]byte(text), value))
}
