package serialize

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Before the opening, browsers and programs with JSON get the page without a place, and all others
// are refused. At the moment, which a reload has moved, all get in.
func TestBeforeTheOpening(t *testing.T) {
	type turns struct {
		cookieAge int // it comes again after five minutes
		change    func(*Handler)
	}
	eachInShop(t, map[string]turns{"requests": {900, noVisit}, "visits": {0, places(1)}}, func(s *shop, test turns) {
		s.load(opensAt(time.Now().Add(2*time.Hour)), test.change)
		b, program := s.newBrowser(), s.newBrowser()
		for range 2 {
			page := b.opens("/").want("page", "Refresh", "300")
			s.equal("the page says so", strings.Contains(page.text, "It opens: 2000"), true)
			s.equal("place", page.place().Number, 0)
			for _, cookie := range page.Result().Cookies() {
				s.equal("seconds of the cookie", cookie.MaxAge, test.cookieAge)
			}
			a := program.program().want("503", "Retry-After", "300")
			opens := s.current.Load().WaitingPage.Opens
			s.equal("the program gets", a.text, fmt.Sprintf(`{"place":null,"wait_seconds":null,"paused":false,"opens":%q}`, opens))
		}
		before := s.counted("closed")
		for _, method := range []string{"POST", "HEAD", "GET"} {
			b.sends(method, "/", nil, "Accept", "*/*").want("closed", "Retry-After", "3600")
		}
		s.equal("counted refusals", s.counted("closed")-before, int64(3))
		shown := 0
		for _, row := range statusQueues(s.Context(), time.Now()) {
			shown += row.Registered
		}
		s.equal("registered on the status page", shown, 2)
		s.pause() // from before the moment
		s.load(opensAt(time.Now().Add(10*time.Second)), test.change)
		place := b.asks().place() // the answer was held
		s.equal("place, seconds", [2]int{place.Number, int(place.Ask)}, [2]int{})
		time.Sleep(10 * time.Second)
		place = b.asks().place()
		s.equal("has a place, and waits for a pause to end", place.Number > 0 && place.Paused, true)
		must(s, s.current.Load().engine.Resume(s.Context(), "shop_"))
		b.enters("/").want("200")
		wait.Until(s, "the program is served", func() bool { return program.program().word == "200" })
		program.posts("/").want("200")
		s.newBrowser().posts("/").want("200")
	})
}

// What a configuration says later counts: it moves the opening, or opens the queue at once. The list stays, also if no
// line had the queue in between. The clock is looked at once a second, if nobody comes. After the moment, another one
// closes the queue again.
//
// A reload that changes what a turn is gives browsers in line new places. Bugs: by a narrower rule, a browser
// took ticket after ticket; it entered without a slot; its visit was not known when it had ended; it gave its drawn place
// up at its next contact; it stayed registered for ever; its cookie still ended in minutes when visits had been added.
func TestReloadsAtAnOpening(t *testing.T) {
	const second, minute = time.Second, time.Minute
	visits := func(*Handler) {}
	three := func(h *Handler) { h.Visit, h.Concurrency = nil, 3 }
	slots := func(h *Handler) { h.Visit, h.Slots = nil, []string{"a", "b", "c"} }
	always := func(h *Handler) { h.WaitingPage.Opens, h.WaitingPage.OpensBy = "", "" }
	type reload struct {
		first, comes, moved time.Duration // the first moment, the reload, and the moment from then on
		opens               time.Duration
		away                bool // no line has the queue before the reload
		before, after       func(*Handler)
	}
	eachInShop(t, map[string]reload{
		"a narrower rule":            {0, 0, 0, 0, false, three, noVisit},
		"slots":                      {0, 0, 0, 0, false, three, slots},
		"visits":                     {0, 0, 0, 0, false, noVisit, visits},
		"slots, registered":          {second, 0, second, second, false, noVisit, slots},
		"visits, registered":         {second, 0, second, second, false, noVisit, visits},
		"no visits, registered":      {second, 0, second, second, false, visits, noVisit},
		"no opening, registered":     {second, 0, second, second, true, visits, always},
		"same, in the second before": {minute, 59 * second, minute, minute, false, visits, visits},
		"same, in the second after":  {minute, 61 * second, minute, minute, false, visits, visits},
		"later":                      {minute, second, 10 * minute, 10 * minute, false, visits, visits},
		"earlier":                    {minute, second, 2 * second, 2 * second, false, visits, visits},
		"into the past":              {minute, second, -time.Hour, second, false, visits, visits},
	}, func(s *shop, test reload) {
		s.pause()
		for range 2 {
			begun := time.Now()
			s.load(opensAt(begun.Add(test.first)), test.before)
			b := s.newBrowser().twice("page")
			before := s.tickets()
			if test.away {
				s.load(otherQueue)
			}
			time.Sleep(test.comes)
			s.load(opensAt(begun.Add(test.moved)), test.after)
			time.Sleep(test.opens - test.comes + 2*time.Second)
			b.opens("/").want("page")
			s.newBrowser().opens("/").want("page")
			s.want(0, 2)
			now := s.tickets()
			page := b.twice("page").opens("/")
			s.want(0, 2)
			s.equal("the first one", s.tickets()[0].Token, now[0].Token)
			s.equal("is new", len(before) == 0 || before[0].Token != now[0].Token, true)
			late := now[0].Arrived.Sub(begun) - test.opens
			s.equal("it opened within a second", late >= 0 && late <= time.Second, test.first > 0 && !test.away)
			s.equal("the page shows a number of the list", page.place().Listed == 1, test.first > 0)
			for _, cookie := range b.jar.Cookies(address) {
				s.equal("the cookie lasts", strings.HasPrefix(cookie.Value, "n"), s.current.Load().Visit != nil)
			}
			s.evict(2)
		}
	})
}

// A browser that stays away leaves the list: without a proof within ten seconds, else a quarter of an hour
// after its next contact is due. Bug: without a proof, it had that time, too. So a program without
// cookies that sent 4,000 requests a second took 2 GB. One that comes to the moment, as late as it was asked to,
// keeps its place, but for no longer than any other. queue_length counts those who are registered. They have
// their places when it is reached.
func TestRegisteredBrowserStaysAway(t *testing.T) {
	limit := func(h *Handler) { h.QueueLength = 3 }
	inShop(t, func(s *shop) {
		s.load(opensAt(time.Now().Add(time.Hour)), limit)
		s.pause()
		unproven, away, here := s.newBrowser(), s.newBrowser().twice("page"), s.newBrowser()
		unproven.opens("/").want("page")
		here.opens("/").want("page")
		s.newBrowser().opens("/").want("queue_full")
		for _, step := range []struct {
			passed time.Duration
			want   int
		}{{0, 3}, {10 * time.Second, 2}, {19 * time.Minute, 2}, {time.Minute, 1}} {
			time.Sleep(step.passed)
			s.equal("registered", registered.browsers.Registered("shop_"), step.want)
			here.opens("/").want("page")
		}
		for b, lost := range map[*browser]bool{unproven: false, away: true} {
			s.equal("the page says that a place is lost", strings.Contains(b.opens("/").want("page").text, `class="lost"`), lost)
		}
		page := here.opens("/")
		next, _ := time.ParseDuration(page.Header().Get("Refresh") + "s")
		s.equal("the page comes soon, or its script", next < 3*time.Minute || page.place().Ask == 0, false)
		s.current.Load().engine.Join(serializer.Arrival{Queue: "shop_"}, func(serializer.Turn, error) {}) // as another process may
		s.load(opensAt(time.Now()), limit)
		s.later(next+5*time.Minute-2*time.Second, 0, 4)
		s.later(2*time.Second, 0, 1)
		s.evict(1)
	})
}

// Bug: at an opening, every second browser with a round trip of three seconds came too late for its turn.
func TestSlowNetworksAtAnOpening(t *testing.T) {
	const roundTrip = 3*time.Second - 10*time.Millisecond
	for left := 25 * time.Second; left < 30*time.Second; left += 100 * time.Millisecond { // at all points of a cycle
		inShop(t, func(s *shop) {
			s.load(opensAt(time.Now().Add(left)))
			b, other := s.newBrowser().twice("page"), s.newBrowser()
			time.AfterFunc(left+time.Second/2, func() { other.enters("/") })
			for turn := false; !turn; turn = strings.Contains(b.asks().text, `"turn":true`) {
				time.Sleep(roundTrip)
			}
			time.Sleep(roundTrip)
			b.opens("/").want("200")
			b.leaves()
		})
	}
}

// Bug: turns that waited side by side for browsers which had gone, or did not come, counted as if they had come
// one after another. Then browsers that were here came too late for theirs, at many places.
func TestAbsencesSideBySide(t *testing.T) {
	const roundTrip = 400 * time.Millisecond
	inShop(t, func(s *shop) {
		s.load(opensAt(time.Now().Add(20*time.Second)), noVisit, places(30), func(h *Handler) { h.WaitingPage.OpensBy = "" })
		var all sync.WaitGroup
		for i := range 150 {
			b := s.newBrowser()
			b.ip = fmt.Sprintf("2001:db8:%x::1", i)
			b.twice("page")
			all.Go(func() {
				for turn := false; !turn; turn = strings.Contains(b.asks().text, `"turn":true`) {
					time.Sleep(roundTrip)
				}
				if time.Sleep(roundTrip); i%3 > 0 { // the others do not come for their turns
					b.opens("/?work=1s").want("200")
				}
			})
		}
		all.Wait()
	})
}

// The cookie of a place that has ended, sent again and again, gives places whose turns wait for nobody.
func TestReplayedCookieProvesNothing(t *testing.T) {
	inShop(t, func(s *shop) {
		inside, b := entered(s.T, s.current.Load().engine, "shop_"), s.newBrowser()
		b.opens("/").want("page")
		time.Sleep(time.Minute) // until its place is forgotten
		for range 5 {
			s.newBrowser(b.jar.Cookies(address)...).opens("/").want("page")
		}
		begun := time.Now()
		go inside.Leave()
		entered(s.T, s.current.Load().engine, "shop_").Leave()
		s.equal("time for places whose cookies have not come back", time.Since(begun), time.Duration(0))
	}, noVisit, opensAt(time.Unix(0, 0)))
}

// A crowd gets in line at the moment and not before, also during reloads, each once. Those who have proven their
// cookies are drawn, then come the others of a shared chance, then those without a proof, and then
// newcomers. The log shows how, by the command of the document.
func TestOpeningCrowd(t *testing.T) {
	const each = 50
	inShop(t, func(s *shop) {
		log, moment := new(bytes.Buffer), time.Now().Add(5*time.Second)
		s.logger = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(log), zap.DebugLevel))
		s.load(opensAt(moment))
		s.pause()
		var mu sync.Mutex
		var asking sync.WaitGroup
		numbers := make(map[int]int) // of the list, by place
		want := func(place waitingpage.Place, least, most int) {
			mu.Lock()
			defer mu.Unlock()
			if numbers[place.Number] = place.Listed; place.Number < least || place.Number > most || time.Now().Before(moment) {
				t.Errorf("place %d, %v after the opening; expected %d to %d", place.Number, time.Since(moment), least, most)
			}
		}
		comes := func(user string, most int) {
			b := s.newBrowser()
			for range 2 {
				b.sends("GET", "/", nil, "Accept", "text/html", "User", user).want("page")
			}
			asking.Go(func() {
				place := b.asks().place()
				for place.Number == 0 && time.Since(moment) < time.Minute {
					place = b.asks().place()
				}
				want(place, 1, most)
			})
		}
		var unproven []*browser
		for i := range each {
			comes(fmt.Sprint("user ", i), each+1)
			comes("one with many cookies", 2*each)
			unproven = append(unproven, s.newBrowser())
			unproven[i].opens("/").want("page")
		}
		time.Sleep(time.Until(moment) - 100*time.Millisecond)
		for range 11 { // before, at and after the moment
			s.load(opensAt(moment))
			time.Sleep(20 * time.Millisecond)
		}
		asking.Wait()
		says := "True\n"
		for place := range 2 * each {
			says += fmt.Sprintln(place+1, numbers[place+1])
		}
		want(s.newBrowser().opens("/").place(), 3*each+1, 3*each+1)
		for _, b := range unproven {
			want(b.opens("/").place(), 2*each+1, 3*each)
		}
		s.equal("places", len(numbers), 3*each+1)
		document, err := os.ReadFile("../../docs/waiting-page.md")
		must(t, err)
		_, command, _ := strings.Cut(string(document), "python3 -c '")
		command, _, _ = strings.Cut(command, "' < draw.log")
		python := exec.Command(testcaddy.Need(t, "python3", "apt-get install python3"), "-c", command)
		python.Stdin = log
		out, _ := python.CombinedOutput()
		s.equal("the command prints", string(out), says)
	})
}
