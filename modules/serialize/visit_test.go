package serialize

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The first request of a browser has a turn of its own. With its cookie, a visit begins, and all requests pass by it, of any
// method. After it, only a navigation gets in again. A program that accepts JSON alone keeps its place by the cookie,
// sees it shrink, and has a visit, too. What scripts of pages send gets no place.
func TestVisitOfOneBrowser(t *testing.T) {
	inShop(t, func(s *shop) {
		b, other, program := s.newBrowser(), s.newBrowser(), s.newBrowser()
		visiting, ended := s.counted("visiting"), s.counted("visit_ended")
		for _, accept := range []string{"application/json, text/plain, */*", "*/*", "application/json, text/javascript, */*; q=0.01"} {
			s.newBrowser().sends("GET", "/", nil, "Accept", accept).want("200", "Set-Cookie", "")
		}
		single := b.opens("/").want("200").token()
		s.want(0, 0)
		visit := b.part("/part").want("200").token()
		s.equal("the visit has the first turn", visit == single, false)
		for _, a := range []answer{b.opens("/"), b.part("/part"), b.posts("/cart"), b.sends("DELETE", "/cart", nil)} {
			a.want("200", "Token", visit, "Set-Cookie", "")
		}
		other.twice("page") // with its cookie: it is a browser
		programSees := func(place int) {
			a := program.program().want("503", "Retry-After", "2", "Content-Type", "application/json")
			s.equal("the program gets", a.text, fmt.Sprintf(`{"place":%d,"wait_seconds":null,"paused":false,"opens":null}`, place))
		}
		programSees(2)
		programSees(2)
		s.want(1, 2)
		listed := listQueues(s.Context(), s.current.Load().engine.Shared)[0].Tickets[0]
		s.equal("listed requests", listed.Requests, 5)
		s.equal("the visit goes on for", listed.HeldUntil.Sub(listed.LastRequest), time.Minute)
		b.leaves()
		late := b.posts("/cart").want("visit_ended")
		s.equal("the text says so", strings.Contains(late.text, "nothing was sent"), true)
		b.opens("/").want("page")
		s.equal("counted as visiting", s.counted("visiting")-visiting, int64(6))
		s.equal("counted after the end", s.counted("visit_ended")-ended, int64(1))
		other.enters("/").want("200")
		programSees(1)
		other.leaves()
		s.want(1, 1)
		program.program().want("200")
		program.posts("/order").want("200")
	})
}

// A visit ends by itself, by its upstream or by an operator. Requests that are under way end in peace, but those of
// an evicted one are cancelled; a body that is still being read holds nobody up then, and its request does not
// enter. Others do not pass any more. A reload keeps the visit, also if it closes the queue, or has
// other times. Bug: the place of one that was too long from then on stayed taken for the old time.
func TestVisitEnds(t *testing.T) {
	type way struct {
		field          string         // of the answer to a request
		after, longest time.Duration  // then, a POST comes
		late, underway string         // how that is answered, and what is under way for 61 minutes
		idle, rest     time.Duration  // then, another request comes, and this much later, the visit ends
		reload         func(*Handler) // in between, before one more request
	}
	closed := opensAt(time.Now().Add(time.Hour))
	soon := func(h *Handler) { h.Visit.Idle = caddy.Duration(time.Second) }
	short := func(h *Handler) { h.Visit.Longest = caddy.Duration(time.Second) }
	eachInShop(t, map[string]way{
		"idle":          {after: 30 * time.Minute, late: "200", underway: "200", idle: 59 * time.Second, rest: time.Minute},
		"stays, once":   {field: stayField + "=15m", late: "200", underway: "200", idle: 15*time.Minute - time.Second, rest: time.Minute},
		"stays in vain": {field: stayField + "=15m", longest: 62 * time.Minute, late: "200", underway: "200", idle: 59 * time.Second, rest: time.Second},
		"longest":       {after: time.Hour, longest: time.Hour, late: "visit_ended", underway: "200"},
		"leaves":        {field: leaveField + "=1", late: "visit_ended", underway: "200"},
		"is evicted":    {late: "visit_ended", underway: "504"},
		"while closed":  {late: "200", underway: "200", reload: closed, idle: 59 * time.Second, rest: time.Minute},
		"shorter idle":  {late: "200", underway: "200", reload: soon, rest: time.Second},
		"too long now":  {late: "200", underway: "200", reload: short},
	}, func(s *shop, test way) {
		core, log := observer.New(zap.DebugLevel)
		s.logger = zap.New(core)
		longest := func(h *Handler) { h.Visit.Longest = caddy.Duration(test.longest) }
		s.load(longest)
		b := s.newBrowser().twice("200")
		endUpload, upload := b.uploads(), "200"
		underway := begin(3, func() answer { return b.part("/?work=61m") })
		token := b.posts("/?" + test.field).want("200").token()
		s.later(test.after, 1, 0)
		if test.underway == "504" {
			s.evict(1)
			s.want(0, 0)
			upload = "evicted"
		}
		b.posts("/").want(test.late)
		underway(test.underway)
		endUpload(upload)
		if test.reload != nil {
			s.load(longest, test.reload)
			b.posts("/")
		}
		if test.rest > 0 {
			time.Sleep(test.idle)
			b.posts("/").want("200", "Token", token)
			s.later(test.rest-time.Second, 1, 0)
			b.asks() // bug: a question for the place prolonged the visit
			time.Sleep(time.Second)
		}
		s.want(0, 0)
		b.posts("/").want("visit_ended")
		s.equal("ends in the log", log.FilterMessage("visit ended").Len(), 1) // bug: there were none
	})
}

// The parts of a first page wait in line together, also if some are given up, and leave it if their browser goes.
func TestPartsWaitTogether(t *testing.T) {
	inShop(t, func(s *shop) {
		b, other := s.newBrowser(), s.newBrowser()
		b.opens("/").want("200") // so it has a cookie, and no ticket
		other.twice("200")
		parts := func() (hangUp func(), want func(word string)) {
			ctx, cancel := context.WithCancel(s.Context())
			want = begin(5, func() answer { return (&browser{s, b.jar, ctx, b.ip}).part("/part") })
			s.want(1, 1)
			return cancel, want
		}
		hangUp, all := parts()
		hangUp()
		all("499")
		s.later(5*time.Minute, 1, 0)

		hangUp, some := parts()
		_, others := parts()
		hangUp()
		some("499")
		s.want(1, 1)
		other.leaves()
		others("200")
	}, func(h *Handler) { h.Visit.Idle *= 30 })
}

// While more than half of the places are taken, a browser without a cookie gets the page, whose
// reload enters. A program without cookies holds nothing. When the turns of browsers in line have come, a
// tenth of the places wait for 30 seconds, and the others for three.
func TestTurnsWaitForVisitors(t *testing.T) {
	type queue struct{ places, long int }
	eachInShop(t, map[string]queue{"one": {1, 0}, "two": {2, 1}, "ten": {10, 1}, "thirty": {30, 3}}, func(s *shop, q queue) {
		s.load(places(q.places))
		var visitors []*browser
		for i := range q.places {
			b, first := s.newBrowser(), "200"
			if 2*i > q.places {
				first = "page"
			}
			b.opens("/").want(first)
			s.want(i, 0)
			s.equal("the page learns", b.asks().text, `{"turn":true}`)
			b.opens("/").want("200")
			visitors = append(visitors, b)
		}
		for range q.places {
			s.newBrowser().twice("page")
		}
		for _, b := range visitors {
			b.leaves()
		}
		s.want(q.places, 0)
		s.later(3*time.Second, q.long, 0)
		s.later(26*time.Second, q.long, 0)
		s.later(time.Second, 0, 0)
	})
}

// A cookie says which queue's browser it is, and whether that has had a visit. Nobody can change that. Of a browser with two
// places, whose tabs were opened at once, the visit counts.
func TestCookiesOfVisits(t *testing.T) {
	inShop(t, func(s *shop) {
		sends := func(cookies ...*http.Cookie) answer { return s.newBrowser(cookies...).posts("/") }
		cookieOf := func(b *browser) *http.Cookie { return b.jar.Cookies(address)[0] }
		b, tab := s.newBrowser(), s.newBrowser()
		b.opens("/?fails=1").want("404", "Set-Cookie", "") // caches may keep it, by what an error route says
		b.opens("/").want("200")
		early := cookieOf(b).Value
		visit := b.opens("/").want("200").token()
		mine, late := cookieOf(b), cookieOf(b).Value
		tab.twice("page")
		large := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<12)))
		s.newBrowser(&http.Cookie{Name: mine.Name, Value: early}).sends("GET", "/", large).want("413", "Set-Cookie", "") // as above
		sends(mine, cookieOf(tab)).want("200", "Token", visit)
		sends(cookieOf(tab), mine).want("200", "Token", visit)
		s.evict(2)
		s.want(0, 0)
		for value, word := range map[string]string{
			late: "visit_ended", early: "200", "v" + early[1:]: "200", "n" + late[1:]: "200", late[:len(late)-1]: "200",
		} {
			mine.Value = value
			sends(mine).want(word)
			s.evict(1)
			s.want(0, 0)
		}
		b.opens("/").want("200")
		s.load(otherQueue)
		b.posts("/").want("200")
	}, func(h *Handler) { h.Buffer, h.BufferDisk = new(directive.Size(1<<10)), new(directive.Size(1<<10)) })
}

// A reload that changes concurrency reaches the visits and the browsers in line: the next one
// enters at once, or when as few are inside. Bug: it let in all who waited in queues of other lines,
// and of once, that have a name which the prefix could make. Bug: a request whose body came during the
// reload took its ticket by the old concurrency. All behind it waited for the last visit to end.
func TestReloadChangesPlaces(t *testing.T) {
	inShop(t, func(s *shop) {
		reload := func(n int) { s.load(places(n), func(h *Handler) { h.Prefix = "{http.vars.none}shop_" }) }
		reload(1)
		engine := s.current.Load().engine
		defer entered(s.T, engine, "another_shop_").Leave()
		engine.Join(serializer.Arrival{Queue: "another_shop_"}, func(turn serializer.Turn, _ error) { turn.Leave() })
		first, second, third := s.newBrowser().twice("200"), s.newBrowser().twice("page"), s.newBrowser().twice("page")
		reload(2)
		s.want(2, 1)
		second.opens("/").want("200")
		reload(1)
		first.leaves()
		s.want(1, 1)
		third.opens("/").want("page")
		second.leaves()
		s.want(1, 0)
		third.opens("/").want("200")
		_, waiting := engine.Count("another_shop_")
		s.equal("waiting in the queue of another line", waiting, 1)
		endUpload := s.newBrowser().uploads()
		reload(2)
		endUpload("200")
		s.want(1, 0) // the visit goes on
	})
}
