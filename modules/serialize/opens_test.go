package serialize

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var openingPages = flag.Int("opens.pages", 300, "how many pages TestOpeningCrowd has open, and programs without cookies beside them")

// opensIn loads a configuration whose queue opens after a time, with or without visits.
func (s *shop) opensIn(left time.Duration, visits bool) {
	s.Helper()
	opens := time.Now().Add(left).Format(time.RFC3339Nano)
	s.change = func(h *Handler) {
		h.WaitingPage.Opens, h.WaitingPage.OpensBy = opens, "{http.request.header.User}"
		if !visits {
			h.Visit = nil
		}
	}
	s.load(1)
}

// Before the opening, browsers and programs with JSON get the page without a place, and all others
// are refused. At the moment, which a reload has moved, all get in.
func TestBeforeTheOpening(t *testing.T)         { testBeforeTheOpening(t, false) }
func TestBeforeTheOpeningOfVisits(t *testing.T) { testBeforeTheOpening(t, true) }

func testBeforeTheOpening(t *testing.T, visits bool) {
	s := newShop(t, 1, 50*time.Millisecond)
	s.opensIn(2*time.Hour, visits)
	ctx, b, program := t.Context(), s.newBrowser(), s.newBrowser()
	for range 2 {
		page := b.opens(ctx, "/").want(s, "page")
		if page.Header.Get("Refresh") != "300" || page.StatusCode != 503 || !strings.Contains(page.text, "It opens: 20") || !strings.Contains(page.text, `"number":0`) {
			t.Errorf("the page is %v %s", page.Header, page.text)
		}
		for _, cookie := range page.Cookies() { // it comes again after five minutes
			if want := map[bool]int{false: 900, true: 0}[visits]; cookie.MaxAge != want {
				t.Errorf("the cookie lasts for %d s; expected %d", cookie.MaxAge, want)
			}
		}
		answer := program.does(ctx, "GET", "/", "Accept", "application/json").want(s, "503")
		want := fmt.Sprintf(`{"place":null,"wait_seconds":null,"paused":false,"opens":%q}`, s.current.Load().WaitingPage.Opens)
		if answer.text != want || answer.Header.Get("Retry-After") != "300" {
			t.Errorf("the program gets %v %s; expected %s", answer.Header, answer.text, want)
		}
	}
	for _, method := range []string{"POST", "HEAD", "GET"} {
		refused := b.does(ctx, method, "/", "Accept", "*/*").want(s, "closed")
		if refused.StatusCode != 503 || refused.Header.Get("Retry-After") != "3600" {
			t.Errorf("%s is answered %d %v", method, refused.StatusCode, refused.Header)
		}
	}
	shown := 0
	for _, row := range statusQueues(ctx, time.Now()) {
		shown += row.Registered
	}
	if shown != 2 || s.outcome("closed") != 3 {
		t.Errorf("%d refusals were counted, and the status page shows %d registered", s.outcome("closed"), shown)
	}
	// A pause from before the moment stops those who are drawn.
	must(t, s.current.Load().engine.Pause(ctx, s.Name(), time.Time{}))
	s.opensIn(time.Second, visits)
	wait.Until(t, "the page has a place in the paused queue", func() bool {
		text := b.does(ctx, "GET", "/", "Accept", "text/html", "Orderly-Place", "ask").text
		return strings.Contains(text, `"paused":true`) && !strings.Contains(text, `"number":0`)
	})
	must(t, s.current.Load().engine.Resume(ctx, s.Name()))
	b.enters(ctx, "/").want(s, "200")
	wait.Until(t, "the program is served", func() bool {
		return program.does(ctx, "GET", "/", "Accept", "application/json").word == "200"
	})
	wait.Until(t, "others are served", func() bool { return s.newBrowser().does(ctx, "POST", "/").word == "200" })
}

// A reload keeps the list, and the draw counts, also if it changes what a turn is, or if no line had the queue in
// between. Bugs: a browser gave its drawn place up at its next contact; it stayed registered for ever; its cookie
// still ended in minutes when visits had been added.
func TestReloadKeepsTheList(t *testing.T) {
	none, visits := func(h *Handler) { h.Visit = nil }, func(*Handler) {}
	for name, changes := range map[string][]func(*Handler){
		"visit added": {none, visits}, "visit removed": {visits, none},
		"slots added": {none, func(h *Handler) { h.Visit, h.Concurrency, h.Slots = nil, 0, []string{"a"} }},
		"left out":    {visits, func(h *Handler) { h.Prefix += "other" }, func(h *Handler) { h.WaitingPage.Opens = "" }},
	} {
		s, queue, opens := newShop(t, 1, time.Hour), t.Name()+name, time.Now().Add(time.Second).Format(time.RFC3339Nano)
		b, newcomer := s.newBrowser(), s.newBrowser()
		for i, change := range changes {
			s.change = func(h *Handler) {
				h.Prefix, h.WaitingPage.Opens = queue, opens
				change(h)
			}
			if s.load(1); i == 0 {
				must(t, s.current.Load().engine.Pause(t.Context(), queue, serializer.Forever))
				b.opens(t.Context(), "/").want(s, "page")
				b.opens(t.Context(), "/").want(s, "page")
			}
		}
		b.opens(t.Context(), "/").want(s, "page")
		newcomer.opens(t.Context(), "/").want(s, "page")
		line := func() (tickets []serializer.TicketState) {
			for _, q := range s.current.Load().engine.Known(func(name string) bool { return name == queue }) {
				tickets = append(tickets, q.Tickets...)
			}
			return tickets
		}
		var before []serializer.TicketState
		wait.Until(t, name+": it has its place", func() bool { before = line(); return len(before) == 2 })
		page := b.opens(t.Context(), "/").want(s, "page")
		time.Sleep(10 * time.Millisecond)
		if after := line(); len(after) != 2 || after[0].Token != before[0].Token {
			t.Errorf("%s: the line was %v, and is %v", name, before, after)
		}
		if name == "visit added" && (len(page.Cookies()) != 1 || page.Cookies()[0].MaxAge != 0) {
			t.Errorf("the page sends the cookies %v", page.Cookies())
		}
	}
}

// A crowd whose pages are open gets in line soon after the moment and not before, also during reloads,
// each once. One robot with many cookies has one chance, and programs without cookies stand behind.
func TestOpeningCrowd(t *testing.T) {
	s := newShop(t, 1, time.Hour)
	s.engine, s.hold = "file", time.Hour // a place that is given up moves those behind it
	s.opensIn(time.Hour, false)
	inside, err := s.current.Load().engine.Enter(t.Context(), serializer.Arrival{Queue: s.Name()})
	must(t, err)
	defer func() {
		inside.Leave()
		wait.Until(t, "no lock file is left", func() bool { return s.evict(t.Context(), math.MaxInt) == 0 })
	}()
	pages := *openingPages
	jars := make([]*cookiejar.Jar, pages)
	for i := range pages {
		jars[i], _ = cookiejar.New(nil)
		user := fmt.Sprint("user ", i/2*2) // each second one shares a chance with the one before
		for range 2 {
			sends(s, jars[i], "/", "User", user)
		}
	}
	s.opensIn(2*time.Second, false)
	opens := s.current.Load().line.Opens
	for range pages {
		none, _ := cookiejar.New(nil)
		sends(s, none, "/")
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	seen, drawn := make(map[int]int), make(map[int]int) // pages by place, and by user
	var last time.Time
	for i := range pages {
		asking.Go(func() {
			var place struct{ Number, Listed int }
			for place.Number == 0 && t.Context().Err() == nil {
				_ = json.Unmarshal(sends(s, jars[i], "/", "Orderly-Place", "ask").Body.Bytes(), &place)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[place.Number]++
			if place.Number <= (pages+1)/2 {
				drawn[i/2]++
			}
			if last = time.Now(); last.Before(opens) || place.Listed == 0 {
				t.Errorf("page %d has the number %d, %v after the opening", i, place.Listed, last.Sub(opens))
			}
		})
	}
	for time.Now().Before(opens.Add(100 * time.Millisecond)) { // reloads before, at and after the moment
		s.load(1)
		time.Sleep(20 * time.Millisecond)
	}
	asking.Wait()
	_, waiting := s.current.Load().engine.Count(s.Name())
	t.Logf("%d pages were in line %v after the opening; %d wait", pages, last.Sub(opens), waiting)
	if waiting > 2*pages {
		t.Errorf("%d wait; expected %d at most", waiting, 2*pages)
	}
	for i := range pages {
		if seen[i+1] != 1 || drawn[i/2] != 1 {
			t.Fatalf("place %d was given to %d pages, and user %d has %d in front", i+1, seen[i+1], i/2, drawn[i/2])
		}
	}
}
