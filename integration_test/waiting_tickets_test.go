package integration_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: the deletion of the cookie came with the answer of a turn. It hit the cookie of
// the next ticket, which the browser had received in the meantime. That ticket was unused
// when its turn came.
func TestWaitingAnswerSparesTheNextTicket(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	b := newVisitor(s)
	b.waits(t, "one")
	leave()
	one := b.going(t, "one")
	in := s.NextNamed("one")
	a := b.waits(t, "two") // while its first request is inside
	if strings.Contains(a.Text, lost) || !strings.Contains(a.Text, "You are next.") {
		t.Errorf("the page shows %s", a.Text)
	}
	in.Leave()
	wantServed(t, b.take(t, one), "one")
	b.isServed(t, "two")
	if len(b.cookies) > 0 {
		t.Errorf("the browser still has the cookies %v", b.cookies)
	}
	s.awaitTickets(t, 0)
	s.wantMetric(t, `caddy_serialize_kept_total{outcome="missed",queue="a_"}`, 0)
}

// Bug: if two tabs were opened before the first had its page, the second one's
// cookie replaced the first one's. The earlier place was lost.
func TestWaitingTwoTabsAtOnce(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 300ms", "")
	b := newVisitor(s)
	one := b.going(t, "tab/one")
	s.awaitTickets(t, 2)
	between := s.send(t, "POST", "between")
	s.awaitTickets(t, 3)
	two := b.going(t, "tab/two")
	s.awaitTickets(t, 4)
	wantPage(t, b.take(t, one))
	wantPage(t, b.take(t, two))
	if len(b.cookies) != 2 {
		t.Fatalf("cookies %v; expected two", b.cookies)
	}
	events := s.follow(t, b)
	if event, place := <-events, <-events; event != "place" || !strings.Contains(place, "You are next.") {
		t.Errorf("event %s %s", event, place)
	}
	s.awaitTickets(t, 3)
	if a := b.waits(t, "tab/two"); !strings.Contains(a.Text, "You are next.") || len(b.cookies) != 1 {
		t.Errorf("cookies %v; the page shows %s", b.cookies, a.Text)
	}
	leave()
	b.isServed(t, "tab/two")
	s.NextNamed("between").Leave()
	testcaddy.Await(t, between)
}

// Bug: of the cookies of many tabs that were opened at once, only eight were read. The
// others counted as refused.
func TestWaitingManyTabsAtOnce(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 5s\nhold 30s", "")
	b := newVisitor(s)
	var pages []<-chan testcaddy.Answer
	for i := range 20 {
		pages = append(pages, b.going(t, "tab/"+strconv.Itoa(i)))
	}
	for _, page := range pages {
		wantPage(t, b.take(t, page))
	}
	s.awaitTickets(t, len(pages)+1)
	b.waits(t, "tab/0")
	if len(b.cookies) != 1 {
		t.Errorf("the browser has %d cookies; expected one", len(b.cookies))
	}
	s.awaitTickets(t, 2)
	leave()
	b.isServed(t, "tab/0")
}

// Bug: the browsers of one address got their pages one by one.
func TestWaitingManyBehindOneAddress(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 5s\nhold 30s", "")
	var visitors []*visitor
	var pages []<-chan testcaddy.Answer
	for i := range 10 { // all arrive before the first one has its page
		b := newVisitor(s)
		visitors = append(visitors, b)
		pages = append(pages, b.going(t, strconv.Itoa(i)))
		s.awaitTickets(t, i+2)
	}
	for i, b := range visitors { // no cookie has come back until all have their page
		wantPage(t, b.take(t, pages[i]))
	}
	leave()
	for i, b := range visitors {
		b.isServed(t, strconv.Itoa(i))
	}
}

// rulesSite is a site with several handlers for one queue.
func rulesSite(t *testing.T, handlers string) *site {
	t.Helper()
	s := unstartedSite(t)
	s.start(t, "http://"+s.host+" {\n"+strings.ReplaceAll(handlers, "QUEUE", "path "+s.dir+"\nprefix a_\ntimeout 10m\nwaiting_page {\nafter 0\n}")+
		"\nreverse_proxy "+s.Upstream.Addr+"\n}\n")
	return s
}

// Bug: a ticket taken under a rule for several holders was accepted for a turn that must
// be exclusive.
func TestWaitingTicketOfAnotherRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loose  string
		others []string // inside beside the browser's turn
	}{
		{"shared_methods GET", nil},
		{"concurrency 2", []string{"loose/full"}},
	} {
		t.Run(c.loose, func(t *testing.T) {
			t.Parallel()
			s := rulesSite(t, "serialize /loose/* {\nQUEUE\n"+c.loose+"\n}\nserialize /strict/* {\nQUEUE\n}\n")
			first := testcaddy.Send(t, http.MethodPost, s.url+"strict/first", "")
			in := s.NextNamed("strict/first")
			for _, name := range c.others {
				testcaddy.Send(t, http.MethodPost, s.url+name, "")
				s.NextNamed(name)
			}
			b := newVisitor(s)
			b.waits(t, "loose/mine")
			if c.others == nil {
				testcaddy.Send(t, http.MethodGet, s.url+"loose/reader", "")
			}
			in.Leave()
			testcaddy.Await(t, first)
			if c.others == nil {
				s.NextNamed("loose/reader") // so the browser's turn has come, too
			}
			b.waits(t, "strict/mine")
			s.Nobody()
		})
	}
}

// A stricter ticket is accepted wherever more may be inside.
func TestWaitingTicketOfAStricterRule(t *testing.T) {
	t.Parallel()
	s := rulesSite(t, "serialize /loose/* {\nQUEUE\nconcurrency 5\n}\nserialize /strict/* {\nQUEUE\n}\n")
	first := testcaddy.Send(t, http.MethodPost, s.url+"strict/first", "")
	in := s.NextNamed("strict/first")
	b := newVisitor(s)
	b.waits(t, "strict/mine")
	in.Leave()
	testcaddy.Await(t, first)
	b.isServed(t, "loose/mine")
}

// Bug: a browser that refuses cookies got page after page, and lost every turn, if its
// turn came before the place was given up.
func TestWaitingTurnOfRefusedCookies(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1m", "")
	refuses := newVisitor(s, "User-Agent", "refuses cookies")
	wantPage(t, testcaddy.Await(t, refuses.going(t, "mine")))
	leave()
	s.wantMetric(t, `caddy_serialize_kept_total{outcome="missed",queue="a_"}`, 1)
	leave = s.occupy(t)
	again := refuses.going(t, "mine")
	s.awaitTickets(t, 2)
	leave()
	s.NextNamed("mine").Leave()
	wantServed(t, testcaddy.Await(t, again), "mine")
}

// Bug: a browser returned with its cookie after its place was given up. If it had not
// returned before, it was taken for one that refuses cookies. It waited with an open
// connection, and was not told that its place was gone.
func TestWaitingCookieComesLate(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1s", "")
	b := newVisitor(s, "User-Agent", "slow")
	b.waits(t, "mine")
	s.awaitTickets(t, 1)
	if a := b.waits(t, "mine"); !strings.Contains(a.Text, lost) {
		t.Errorf("the page does not say that the place is gone: %s", a.Text)
	}
	leave()
}

// Bug: a client that kept opening live streams kept an idle turn for the whole of hold.
func TestWaitingTurnIsNotProlongedForEver(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(s)
	b.waits(t, "mine")
	three := s.send(t, "POST", "three")
	s.awaitTickets(t, 3)
	stop := make(chan struct{})
	defer close(stop)
	s.follow(t, b)
	leave()
	go func() { // never claims
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				s.glance(b)
			}
		}
	}()
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
}

// glance opens the stream of the page's script for a moment.
func (s *site) glance(b *visitor) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"mine", nil)
	if err != nil {
		return
	}
	r.Header.Set("Orderly-Waiting", "live")
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
	}
}

// Bug: Refresh counts whole seconds. So with a hold of one second, the place was given up
// before the page could return.
func TestWaitingShortHold(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1s", "")
	b := newVisitor(s)
	for range 4 {
		if a := b.waits(t, "mine"); a.Header.Get("Refresh") != "1" || strings.Contains(a.Text, lost) {
			t.Errorf("%v, the page shows %s", a.Header, a.Text)
		}
		time.Sleep(1300 * time.Millisecond) // as a browser does, on a slow network
	}
	leave()
}

// Bug: if a queue with the page was inside another queue of the same name, every request
// ended in a panic.
func TestWaitingPageInAQueueOfTheSameName(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	s.start(t, `http://`+s.host+` {
	serialize {
		path `+t.TempDir()+`
		prefix a_
	}
	route {
		serialize {
			path `+t.TempDir()+`
			prefix a_
			waiting_page
		}
		reverse_proxy `+s.Upstream.Addr+`
	}
}
`)
	for _, header := range [][]string{nil, navigation} {
		answer := testcaddy.Send(t, http.MethodGet, s.url+"mine", "", header...)
		s.NextNamed("mine").Leave()
		wantServed(t, testcaddy.Await(t, answer), "mine")
	}
}
