//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
)

// Bug: each keyed queue left a cookie for a day, also when its browser was served. At 200,
// an application answered 431: it got all of them with every request.
func TestWaitingCookiesEnd(t *testing.T) {
	t.Parallel()
	// Those of the site, and of another Caddy in front or behind, go on.
	const others = `session=1; a="b; c="; orderly_waiting_0123456789ab=` + "ABCDEFGHIJKLMNOPQRSTUVWXYZ.AAAA; last"
	inner := "serialize /inner {\npath {$DIR}\nprefix inner_\nwaiting_page {\nafter 0\n}\n}\n"
	c := start(t, setup{site: "serialize /open off\n" + inner + waitingSite("after 0\nhold 10m", "error_response text/plain refused")})
	leave := c.occupy("first")
	b := newVisitor(c)
	own := func() []string {
		cookie := others
		for name, value := range b.cookies {
			cookie += "; " + name + "=" + value
		}
		return []string{"Cookie", cookie}
	}
	sees := func(name string) {
		t.Helper()
		if got := c.awaitHit(name).Header["Cookie"]; len(got) != 1 || got[0] != others {
			t.Errorf("%s: the upstream sees the cookies %q; expected %s", name, got, others)
		}
	}
	b.waits("mine")
	b.waits("mine", own()...)
	if len(b.cookies) != 1 {
		t.Errorf("while it waits, the browser has %v", b.cookies)
	}
	b.opens("open", own()...).Want(t, http.StatusOK)
	sees("open")
	b.waits("inner", own()...) // which gets its turn in the inner queue; this line comes first
	leave()
	b.awaitTurn("mine")
	if a := b.opens("mine", own()...).Want(t, http.StatusOK); a.Header.Get("Cache-Control") != "" {
		t.Errorf("the answer has %v", a.Header)
	}
	sees("mine")
	if len(b.cookies) != 0 {
		t.Errorf("when it was served, the browser has %v", b.cookies)
	}
	c.occupy("second")
	b.waits("mine")
	b.waits("mine")
	c.API("DELETE", c.path("a_")+"/"+c.awaitQueue("a_", 1, 1).Tickets[1].Token, "").Want(t, http.StatusOK)
	b.awaitTurn("mine")
	if a := b.opens("mine"); a.Text != "refused" || len(b.cookies) != 0 {
		t.Errorf("answer %s; when it was refused, the browser has %v", a.Text, b.cookies)
	}
}

// A second tab that lines up again keeps its place when the answer of the first tab's turn
// arrives: that removes the cookie of the first place alone.
func TestWaitingCookieOfTheNextPlaceStays(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(c)
	b.waits("one")
	leave()
	b.awaitTurn("one")
	two := newVisitor(c)
	for name, value := range b.cookies {
		two.cookies[name] = value
	}
	one := b.going("one?gate")
	c.awaitHit("one")
	two.waits("two")
	c.Open("one")
	for _, cookie := range (<-one).Cookies() {
		if cookie.MaxAge >= 0 {
			t.Errorf("the first tab gets the cookie %v", cookie)
		}
		delete(two.cookies, cookie.Name)
	}
	two.isServed("two")
	if len(two.cookies) != 0 {
		t.Errorf("the browser has %v", two.cookies)
	}
}

// The page has another status where caches and balancers take 503 for a failure.
func TestWaitingPageStatus(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nstatus 202", "")
	b := newVisitor(c)
	if a := b.opens("mine").Want(t, http.StatusAccepted); a.Header.Get("Cache-Control") != "no-store" || !strings.Contains(a.Text, `data-waiting="place"`) {
		t.Errorf("answer %v %s", a.Header, a.Text)
	}
	leave()
	b.awaitTurn("mine")
	b.opens("mine").Want(t, http.StatusOK)
}
