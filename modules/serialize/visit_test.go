package serialize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func (a answer) want(s *shop, word string) answer {
	s.Helper()
	if a.word != word {
		s.Errorf("answer %s %s; expected %s", a.word, a.text, word)
	}
	return a
}

// inside waits until so many are inside the queue.
func (s *shop) inside(want int) {
	s.Helper()
	wait.Until(s, "so many are inside", func() bool {
		inside, _ := s.current.Load().engine.Count(s.Name())
		return inside == want
	})
}

// outcome is how many requests had an outcome.
func (s *shop) outcome(name string) int64 { return s.current.Load().report.Outcomes[name].Count.Load() }

// The first request of a browser has a turn of its own. With its cookie, a visit begins, and all
// requests pass by it, of any method. After it, only a navigation gets in again.
func TestVisitOfOneBrowser(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	b, ctx := s.newBrowser(), t.Context()
	visiting, ended := s.outcome(telemetry.OutcomeVisiting), s.outcome(string(telemetry.ReasonVisitEnded))
	single := b.opens(ctx, "/").want(s, "200").Header.Get("Token")
	s.inside(0)
	first := b.part(ctx, "/part").want(s, "200").Header.Get("Token")
	s.inside(1)
	for _, a := range []answer{b.opens(ctx, "/"), b.part(ctx, "/part"), b.does(ctx, "POST", "/cart"), b.does(ctx, "DELETE", "/cart")} {
		if token := a.want(s, "200").Header.Get("Token"); token != first || token == single {
			t.Errorf("a request has turn %s; the visit has %s", token, first)
		}
		if len(a.Cookies()) > 0 {
			t.Errorf("a request of the visit gets a cookie again: %v", a.Cookies())
		}
	}
	other := s.newBrowser()
	other.opens(ctx, "/").want(s, "page")
	other.opens(ctx, "/").want(s, "page") // with its cookie: it is a browser
	if q := listQueues(ctx, s.current.Load().engine.Shared)[0]; q.Tickets[0].Requests != 5 || q.Tickets[0].LastRequest.IsZero() || q.Tickets[0].HeldUntil.IsZero() {
		t.Errorf("listed as %+v", q.Tickets[0])
	}
	b.does(ctx, "POST", "/logout?"+leaveField+"=1").want(s, "200")
	late := b.does(ctx, "POST", "/cart").want(s, string(telemetry.ReasonVisitEnded))
	if late.StatusCode != http.StatusServiceUnavailable || !strings.Contains(late.text, "nothing was sent") {
		t.Errorf("after the visit: %d %s", late.StatusCode, late.text)
	}
	b.opens(ctx, "/").want(s, "page")
	visiting, ended = s.outcome(telemetry.OutcomeVisiting)-visiting, s.outcome(string(telemetry.ReasonVisitEnded))-ended
	if visiting != 6 || ended != 1 {
		t.Errorf("%d requests were counted as visiting, and %d after the end", visiting, ended)
	}
	if a := other.enters(ctx, "/"); a.word != "200" {
		t.Errorf("the next browser gets %s", a.word)
	}
}

// While more than half of the places are taken, a browser without a cookie gets the page, whose
// reload enters. A program without cookies holds nothing.
func TestNewcomersOfABusyShop(t *testing.T) {
	s := newShop(t, 4, time.Hour)
	ctx := t.Context()
	for i := range 4 {
		newcomer := s.newBrowser()
		a := newcomer.opens(ctx, "/")
		if want := map[bool]string{false: "200", true: "page"}[i > 2]; a.word != want {
			t.Errorf("with %d of 4 places taken: %s; expected %s", i, a.word, want)
		}
		s.inside(i)
		if ask := newcomer.does(ctx, "GET", "/", "Accept", "text/html", "Orderly-Place", "ask"); i > 2 && ask.text != `{"turn":true}` {
			t.Errorf("the page learns %s", ask.text)
		}
		newcomer.opens(ctx, "/").want(s, "200")
		s.inside(i + 1)
	}
}

// A reload keeps visits, also with other times. Requests that wait for the next one do not lose it.
func TestReloadKeepsVisits(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	b, ctx := s.newBrowser(), t.Context()
	b.opens(ctx, "/").want(s, "200")
	token := b.opens(ctx, "/").want(s, "200").Header.Get("Token")
	s.opensIn(time.Hour, true)
	b.does(ctx, "POST", "/cart").want(s, "200") // though the queue is closed
	s.idle = 50 * time.Millisecond
	s.load(1)
	if a := b.part(ctx, "/"); a.Header.Get("Token") != token {
		t.Errorf("after a reload: %s with turn %s; expected %s", a.word, a.Header.Get("Token"), token)
	}
	s.inside(0)
	s.change, s.idle = nil, time.Hour
	s.load(1)
	b.enters(ctx, "/").want(s, "200")
	s.idle = time.Millisecond // so the visit is too long now. Bug: its place stayed taken for the old time
	s.load(1)
	time.Sleep(20 * s.idle)
	b.enters(ctx, "/").want(s, "200")
}

// A reload that changes concurrency reaches the visits and the browsers in line: the next one
// enters at once, or when as few are inside. Bug: it let in all who waited in queues of other lines,
// and of once, that have a name which the prefix could make.
func TestReloadChangesPlaces(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	s.change = func(h *Handler) { h.Prefix = "{http.vars.none}" + t.Name() }
	s.load(1)
	for range 2 {
		s.current.Load().engine.Join(serializer.Arrival{Queue: "other" + t.Name()}, func(serializer.Turn, error) {})
	}
	ctx := t.Context()
	browsers := []*browser{s.newBrowser(), s.newBrowser(), s.newBrowser(), s.newBrowser()}
	for _, b := range browsers {
		b.opens(ctx, "/")
		b.opens(ctx, "/")
	}
	s.inside(1)
	s.load(3)
	s.inside(3)
	for _, b := range browsers[:3] {
		b.enters(ctx, "/").want(s, "200")
	}
	s.load(2)
	browsers[0].does(ctx, "POST", "/?"+leaveField+"=1").want(s, "200")
	browsers[3].opens(ctx, "/").want(s, "page")
	s.inside(2)
	browsers[1].does(ctx, "POST", "/?"+leaveField+"=1").want(s, "200")
	browsers[3].enters(ctx, "/").want(s, "200")
	s.inside(2)
	if inside, _ := s.current.Load().engine.Count("other" + t.Name()); inside != 1 {
		t.Errorf("%d inside the queue of another line", inside)
	}
}

// Bug: a request whose body came during the reload took its ticket by the old concurrency. All behind it
// waited for the last visit to end.
func TestReloadDuringAnUpload(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	body, upload := io.Pipe()
	var status atomic.Int64
	go func() {
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, httptest.NewRequest("POST", "/", body))
		status.Store(int64(answer.Code))
	}()
	_, _ = upload.Write([]byte("the first part"))
	s.load(3)
	visitor := s.newBrowser()
	for range 2 {
		visitor.enters(t.Context(), "/").want(s, "200")
	}
	_ = upload.Close()
	wait.Until(t, "the upload is served beside the visit", func() bool { return status.Load() == http.StatusOK })
}

// A browser that waits during a reload which changes what a turn is starts anew. Bugs: by a narrower rule, it
// took ticket after ticket; it entered without a slot; and its visit was not known when it had ended.
func TestReloadChangesTurns(t *testing.T) {
	for name, change := range map[string]func(*Handler){
		"narrower": func(h *Handler) { h.Visit, h.Concurrency = nil, 2 },
		"slots":    func(h *Handler) { h.Visit, h.Concurrency, h.Slots = nil, 0, []string{"a", "b", "c"} },
		"visits":   func(*Handler) {},
	} {
		s, queue := newShop(t, 3, time.Hour), t.Name()+name
		s.hold, s.change = time.Hour, func(h *Handler) { h.Prefix, h.Visit = queue, nil }
		s.load(3)
		engine := func() *engines.Ref { return s.current.Load().engine }
		must(t, engine().Pause(t.Context(), queue, serializer.Forever))
		b := s.newBrowser()
		b.opens(t.Context(), "/").want(s, "page")
		tickets := func() []serializer.TicketState { return engine().Known(func(string) bool { return true })[0].Tickets }
		before := tickets()[0].Token
		s.change = func(h *Handler) { h.Prefix = queue; change(h) }
		s.load(3)
		for range 3 {
			b.opens(t.Context(), "/").want(s, "page")
		}
		wait.Until(t, name+": it has left its old place", func() bool { return len(tickets()) == 1 })
		if tickets()[0].Token == before {
			t.Errorf("%s: it waits with the ticket from before", name)
		}
	}
}

// A program that accepts JSON alone keeps its place by the cookie, sees it shrink, and has a visit.
// What scripts of pages send gets no place.
func TestProgramKeepsAPlace(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	ctx := t.Context()
	inside, ahead, program := s.newBrowser(), s.newBrowser(), s.newBrowser()
	for _, b := range []*browser{inside, inside, ahead, ahead} {
		b.opens(ctx, "/")
	}
	asks := func(text string) {
		t.Helper()
		a := program.does(ctx, "GET", "/", "Accept", "application/json").want(s, "503")
		if a.text != text || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("answer %v %s; expected %s", a.Header, a.text, text)
		}
	}
	place := `{"place":%d,"wait_seconds":null,"paused":false,"opens":null}`
	for range 2 {
		asks(fmt.Sprintf(place, 2))
	}
	if _, waiting := s.current.Load().engine.Count(s.Name()); waiting != 2 {
		t.Errorf("%d wait; expected 2", waiting)
	}
	inside.does(ctx, "POST", "/?"+leaveField+"=1").want(s, "200")
	ahead.enters(ctx, "/").want(s, "200")
	wait.Until(t, "the place shrinks", func() bool { // readings of the queue may be shared
		return program.does(ctx, "GET", "/", "Accept", "application/json").text == fmt.Sprintf(place, 1)
	})
	ahead.does(ctx, "POST", "/?"+leaveField+"=1").want(s, "200")
	wait.Until(t, "the program is served", func() bool {
		return program.does(ctx, "GET", "/", "Accept", "application/json").word == "200"
	})
	program.does(ctx, "POST", "/order").want(s, "200")
	for _, accept := range []string{"application/json, text/plain, */*", "*/*", "application/json, text/javascript, */*; q=0.01"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", accept)
		if s.current.Load().line.Serves(r) {
			t.Errorf("a script with Accept %s takes a place", accept)
		}
	}
}

// An eviction cancels all requests of a visit.
func TestEvictionCancelsAVisit(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	b, ctx := s.newBrowser(), t.Context()
	b.opens(ctx, "/").want(s, "200")
	b.opens(ctx, "/").want(s, "200")
	words := make(chan string)
	for range 3 {
		go func() { words <- b.part(ctx, "/?work=1h").word }()
	}
	wait.Until(t, "all are inside", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(slices.Collect(maps.Values(s.requests)), 5) // two of the page, and one of each that works
	})
	s.evict(ctx, 1)
	for range 3 {
		if word := <-words; word != "504" {
			t.Errorf("answer %s; expected 504", word)
		}
	}
	s.inside(0)
	b.part(ctx, "/").want(s, string(telemetry.ReasonVisitEnded))
}

// The parts of a first page wait in line together, and leave it if their browser goes.
func TestPartsWaitTogether(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	ctx := t.Context()
	b, other := s.newBrowser(), s.newBrowser()
	b.opens(ctx, "/").want(s, "200")
	other.opens(ctx, "/").want(s, "200")
	other.opens(ctx, "/").want(s, "200")
	for _, leaves := range []bool{true, false} {
		ctx, cancel := context.WithCancel(ctx)
		words := make(chan string)
		for range 5 {
			go func() { words <- b.part(ctx, "/part").word }()
		}
		wait.Until(t, "one ticket waits", func() bool {
			_, waiting := s.current.Load().engine.Count(s.Name())
			return waiting == 1
		})
		want := "200"
		if leaves {
			cancel()
			want = "failed"
		} else {
			other.does(ctx, "POST", "/?"+leaveField+"=1").want(s, "200")
		}
		for range 5 {
			if word := <-words; word != want {
				t.Errorf("a part gets %s; expected %s", word, want)
			}
		}
		wait.Until(t, "no ticket waits", func() bool {
			_, waiting := s.current.Load().engine.Count(s.Name())
			return waiting == 0
		})
		cancel()
	}
}

// A visit without a request takes no goroutine, and little memory.
func TestVisitsAreSmall(t *testing.T) {
	const visits = 300
	s := newShop(t, visits+1, time.Hour)
	begin := func() {
		cookies, _ := cookiejar.New(nil)
		for range 2 {
			sends(s, cookies, "/")
		}
	}
	begin() // which makes what is made once
	before, goroutines := memoryInUse(), runtime.NumGoroutine()
	for range visits {
		begin()
	}
	s.inside(visits + 1)
	s.visits, s.requests = nil, nil // which are the test's own
	if !wait.Poll(wait.Patience, func() bool { return runtime.NumGoroutine() < goroutines+visits/10 }) {
		t.Errorf("%d goroutines; there were %d before the visits", runtime.NumGoroutine(), goroutines)
	}
	size := (memoryInUse() - before) / visits
	t.Logf("a visit takes %d bytes", size)
	if size > 2<<10 {
		t.Errorf("a visit takes %d bytes; expected 2 KB at most", size)
	}
}

// A load refuses what is no opening or no slot, or does not go with visits, and lines of one queue that
// differ in these.
func TestLinesAreRefused(t *testing.T) {
	page := func(opens string) string { return `"waiting_page": {` + opens + `}, ` }
	const opens, visit, same = `"opens": "2026-11-27T10:00:00Z"`, `"visit": {"idle": "5m", "longest": "30m"}, `, `"prefix": "first_", `
	const slotted = `"prefix": "slotted_", `
	t.Setenv("SLOT", "same")
	for settings, says := range map[string]string{
		page(`"opens": "tomorrow"`):                           `opens "tomorrow": expected a moment as in RFC 3339`,
		page(`"opens_by": "{http.vars.client_ip}"`):           `opens "": expected a moment`,
		page(`"opens": "2026-11-27", "opens_by": "10:00:00"`): `opens "2026-11-27": expected a moment`, // bug: the error was of the time
		page(opens): "",
		visit:       "visit: browsers need the page while they wait; expected waiting_page, too",
		visit + page("") + `"hold_at_least": "6s", `:                      "visit: it cannot be combined with hold_at_least; expected one of the two",
		visit + page("") + `"hold_timeout": "6s", `:                       "visit: it cannot be combined with hold_timeout; expected one of the two",
		visit + page("") + `"shared_methods": ["GET"], `:                  "visit: it cannot be combined with shared_methods; expected one of the two",
		page("") + `"visit": {"longest": "30m"}, `:                        "visit 0s: expected a duration of 1ms or more",
		page("") + `"visit": {"idle": "366d"}, `:                          "visit 8784h0m0s: expected a duration of 8760h0m0s or less",
		page("") + `"visit": {"idle": 5}, `:                               `write a text such as "30s"`,
		same + visit + page(opens):                                        "",
		same + page(opens):                                                `visit: two lines of queue "first_" differ`,
		same + `"visit": {"idle": "5m"}, ` + page(opens):                  `visit: two lines of queue "first_" differ`,
		same + visit + page(""):                                           `opens: two lines of queue "first_" differ`,
		same + visit + page(`"opens": "2026-11-27T11:00:00+01:00"`):       "", // Bug: the moment in another zone was refused
		same + visit + page(`"opens": "2026-11-27T10:00:00.5Z"`):          `opens: two lines of queue "first_" differ`,
		same + visit + page(opens+`, "opens_by": "{u}"`):                  `opens: two lines of queue "first_" differ`,
		`"prefix": "first_of_all_", "dry_run": true, ` + visit + page(""): "",
		same + `"dry_run": true, `:                                        "",
		`"slots": ["{env.SLOT}", "{env.SLOT}"], `:                         `slots: "same" is there twice; expected 1 to 64 distinct names`,
		`"slots": ["{env.NO_SUCH}"], `:                                    `slots "{env.NO_SUCH}"`,
		`"slots": ["{http.request.host}"], `:                              `slots "{http.request.host}"`,
		slotted + `"slots": ["b", "a"], `:                                 "",
		slotted + `"slots": ["a", "c"], `:                                 `slots: two lines of queue "slotted_" differ`,
		slotted + `"concurrency": 2, `:                                    "has no slots",
		slotted + `"dry_run": true, `:                                     "has no slots",
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
