package serialize

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// The reference in the documents has each setting with its values and its default, in the
// order of the table, and no other.
func TestSettingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/directives.md")
	must(t, err)
	rows := regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\(#(\\w+)\\) ?(.*?) \\| (.*?) \\| .+ \\|$").
		FindAllStringSubmatch(strings.ReplaceAll(string(text), `\|`, "¦"), -1)
	if len(rows) != len(settings) {
		t.Fatalf("docs/directives.md has %d settings; there are %d", len(rows), len(settings))
	}
	plain := strings.NewReplacer("`", "", "¦", "|")
	for i, s := range settings {
		name, anchor, syntax, usual := rows[i][1], rows[i][2], plain.Replace(rows[i][3]), plain.Replace(rows[i][4])
		if want := plain.Replace(s.Usual); name != s.Name || anchor != s.Name || syntax != s.Syntax || usual != want {
			t.Errorf("docs/directives.md has %s %s with the default %s; expected %s %s with %s", name, syntax, usual, s.Name, s.Syntax, want)
		}
		if !strings.Contains(string(text), "\n### "+s.Name+"\n") {
			t.Errorf("docs/directives.md has no section about %s", s.Name)
		}
	}
}

// The comments of the fields, which Caddy's site shows, say the defaults of the table.
func TestDefaultsInComments(t *testing.T) {
	text, err := os.ReadFile("handler.go")
	must(t, err)
	plain := strings.NewReplacer("\n\t//", "", "`", "", "Default: false", "Default: off")
	for _, s := range settings {
		found := regexp.MustCompile("Default: ([^.;]+)[^/\n]*\n[^/\n]*json:\"" + s.Name + ",").FindStringSubmatch(plain.Replace(string(text)))
		if found == nil || !strings.HasPrefix(plain.Replace(s.Usual), found[1]) {
			t.Errorf("handler.go says of %s: %q; the default is %s", s.Name, found, s.Usual)
		}
	}
}

// The handler's comment and the reference have each placeholder, and each reason of a
// refusal, and no other.
func TestPlaceholdersAndReasonsAreDocumented(t *testing.T) {
	find := func(file, pattern string) (found []string) {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found = append(found, match[1])
		}
		return found
	}
	placeholders := slices.Sorted(slices.Values(find("internal/telemetry/placeholders.go", `name == "(\w+)"`)))
	reasons := slices.Sorted(slices.Values(append(find("../../serializer/refusal.go", `Reason = "(\w+)"`),
		find("internal/telemetry/counters.go", `Reason = "(\w+)"`)...)))
	reasons = slices.DeleteFunc(reasons, func(r string) bool { return r == "gone" }) // nobody is there to see it
	for _, file := range []string{"handler.go", "../../docs/directives.md"} {
		if got := slices.Sorted(slices.Values(find(file, "`{http\\.serialize\\.(\\w+)}` \\|"))); !slices.Equal(got, placeholders) {
			t.Errorf("%s has the placeholders %v; there are %v", file, got, placeholders)
		}
		got := strings.FieldsFunc(find(file, "[Oo]n refusal: `(.+)`")[0], func(c rune) bool { return c < 'a' && c != '_' })
		if got = slices.DeleteFunc(slices.Sorted(slices.Values(got)), func(r string) bool { return r == "or" }); !slices.Equal(got, reasons) {
			t.Errorf("%s has the reasons %v; there are %v", file, got, reasons)
		}
	}
}

// A keepalive without an interval has the default.
func TestUsualInterval(t *testing.T) {
	s := &Handler{KeepAlive: &KeepAlive{Always: true}}
	if err := s.fillIn(); err != nil || time.Duration(*s.KeepAlive.Interval) != 15*time.Second {
		t.Errorf("every %v, %v", s.KeepAlive.Interval, err)
	}
}

// JSON that nobody can mean is refused, and the error says what is expected. A number there is
// nanoseconds.
func TestErrorsOfJSON(t *testing.T) {
	const number = `; in JSON, a number is nanoseconds: write a text such as "30s"`
	const text = `: expected a duration of 1ms or more, or 0` + number
	t.Setenv("SLOT", "same")
	for _, test := range []struct{ json, says string }{
		{`{"timeout": 30}`, "timeout 30ns" + text},
		{`{"hold_timeout": 999999}`, "hold_timeout 999.999µs" + text},
		{`{"hold_at_least": 6}`, "hold_at_least 6ns: expected a duration of 1ms or more" + number},
		{`{"hold_at_least": 0}`, "hold_at_least 0s: expected a duration of 1ms or more, such as 60s"},
		{`{"hold_at_least": "-6s"}`, "hold_at_least -6s: expected a duration of 1ms or more, such as 60s"},
		{`{"waiting_page": {"after": 2}}`, "waiting_page: after 2ns" + text},
		{`{"waiting_page": {"hold": 15}}`, "waiting_page: hold 15ns: expected a duration of 1s or more" + number},
		{`{"keepalive": {"interval": 30}}`, "keepalive 30ns: expected a duration of 1s or more" + number},
		{`{"keepalive": {"interval": 0}}`, "keepalive 0s: expected a duration of 1s or more, such as 60s"},
		{`{"buffer": -1, "buffer_disk": 0}`, "buffer off: unexpected 0 bytes on disk; nothing is kept there"},
		{`{"slots": []}`, "slots: found []; expected " + wantSlots},
		{`{"slots": ["{env.SLOT}", "{env.SLOT}"]}`, `slots: found ["same" "same"]; expected ` + wantSlots},
		{`{"waiting_page": {"opens": "tomorrow"}}`, `waiting_page: opens "tomorrow": expected ` + wantOpens},
		{`{"waiting_page": {"opens_by": "{http.vars.client_ip}"}}`, `waiting_page: opens "": expected ` + wantOpens},
		// Bug: the error was of the time.
		{`{"waiting_page": {"opens": "2026-11-27", "opens_by": "10:00:00"}}`, `waiting_page: opens "2026-11-27": expected ` + wantOpens},
		{`{"visit": {"idle": "5m"}}`, "visit: browsers need the page while they wait; expected waiting_page, too"},
		{`{"visit": {"idle": "5m"}, "hold_at_least": "6s"}`, "visit: it cannot be combined with hold_at_least; expected one of the two"},
		{`{"visit": {"idle": "5m"}, "hold_timeout": "6s"}`, "visit: it cannot be combined with hold_timeout; expected one of the two"},
		{`{"visit": {"idle": "5m"}, "shared_methods": ["GET"]}`, "visit: it cannot be combined with shared_methods; expected one of the two"},
		{`{"visit": {"longest": "30m"}, "waiting_page": {}}`, "visit 0s: expected a duration of 1ms or more, such as 60s"},
		{`{"visit": {"idle": "366d"}, "waiting_page": {}}`, "visit 8784h0m0s: expected a duration of 8760h0m0s or less, such as 15s"},
		{`{"visit": {"idle": 5}, "waiting_page": {}}`, "visit 5ns: expected a duration of 1ms or more" + number},
		{`{"path": "/api/*"}`, `path "/api/*": expected a directory, which has no *; ` + directive.WantMatcher},
		{`{"prefix": "a/b_"}`, `prefix "a/b_": expected a text without a path separator; the directory is set by path`},
	} {
		s := new(Handler)
		must(t, json.Unmarshal([]byte(test.json), s))
		err := s.fillIn()
		if err == nil || err.Error() != test.says {
			t.Errorf("%s: %v; expected %s", test.json, err, test.says)
		}
	}
}

// Lines of one queue that differ in visits, openings or slots are refused. One moment is the same in all zones.
func TestLinesOfOneQueue(t *testing.T) {
	page := func(opens string) string { return `"waiting_page": {` + opens + `}, ` }
	const opens, visit, same = `"opens": "2026-11-27T10:00:00Z"`, `"visit": {"idle": "5m", "longest": "30m"}, `, `"prefix": "first_", `
	const slotted = `"prefix": "slotted_", `
	for settings, says := range map[string]string{
		same + visit + page(opens):                                         "",
		same + page(opens):                                                 `visit: two lines of queue "first_" differ`,
		same + `"visit": {"idle": "5m"}, ` + page(opens):                   `visit: two lines of queue "first_" differ`,
		same + `"visit": {"idle": "6m", "longest": "30m"}, ` + page(opens): `visit: two lines of queue "first_" differ`,
		same + visit + page(""):                                            `opens: two lines of queue "first_" differ`,
		same + visit + page(`"opens": "2026-11-27T11:00:00+01:00"`):        "", // Bug: the moment in another zone was refused
		same + visit + page(`"opens": "2026-11-27T10:00:00.5Z"`):           `opens: two lines of queue "first_" differ`,
		same + visit + page(opens+`, "opens_by": "{u}"`):                   `opens: two lines of queue "first_" differ`,
		`"prefix": "first_of_all_", "dry_run": true, ` + visit + page(""):  "",
		page(opens):                          "",
		same + `"dry_run": true, `:           "",
		`"slots": ["{env.NO_SUCH}"], `:       `slots "{env.NO_SUCH}"`,
		`"slots": ["{http.request.host}"], `: `slots "{http.request.host}"`,
		slotted + `"slots": ["b", "a"], `:    "",
		slotted + `"slots": ["a b"], `:       `slots: two lines of queue "slotted_" differ`, // Bug: it was taken for the two
		slotted + `"slots": ["a", "c"], `:    `slots: two lines of queue "slotted_" differ`,
		slotted + `"concurrency": 2, `:       "has no slots",
		slotted + `"dry_run": true, `:        "has no slots",
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		first, second, s, rest := new(Handler), new(Handler), new(Handler), `"engine": {"engine": "memory"}}`
		err := errors.Join(json.Unmarshal([]byte("{"+same+visit+page(opens)+rest), first), first.Provision(ctx),
			json.Unmarshal([]byte("{"+slotted+`"slots": ["a", "b"], `+rest), second), second.Provision(ctx),
			json.Unmarshal([]byte("{"+settings+rest), s), s.Provision(ctx))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v; expected %s", settings, err, says)
		}
		_, _, _ = s.Cleanup(), second.Cleanup(), first.Cleanup()
		cancel()
	}
}
