package recipes

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A visitor of the sale gets the shop's page with its place, keeps the place, and goes
// on; what is static does not wait.
func TestTicketSale(t *testing.T) {
	page := filepath.Join(t.TempDir(), "waiting.html")
	testcaddy.WriteFile(t, page, blocks(t, "recipes.md", "A ticket sale", "html")[0])
	k := cook(t, "A ticket sale", "concurrency 20", "concurrency 1", "/srv/shop/waiting.html", page)
	first := k.get(t, "shop/seats")
	inside := k.NextNamed("shop/seats")
	a := want(t, k.get(t, "shop/seats", "Accept", "text/html", "Accept-Language", "de"), 503, "Sie sind als Nächstes dran.")
	if !strings.Contains(a.Text, `aria-label="Example Tickets"`) || !strings.Contains(a.Text, "<script>") {
		t.Errorf("the page is %s", a.Text)
	}
	cookie := a.Cookies()[0]
	want(t, k.get(t, "shop/seats", "Accept", "text/html", "Cookie", cookie.Name+"="+cookie.Value), 503, "You are next.")
	static := k.get(t, "shop/static/logo.svg")
	k.NextNamed("shop/static/logo.svg").Leave()
	want(t, static, 200, "")
	inside.Leave()
	want(t, first, 200, "")
	second := k.get(t, "shop/seats", "Accept", "text/html", "Cookie", cookie.Name+"="+cookie.Value)
	k.NextNamed("shop/seats").Leave()
	want(t, second, 200, "served shop/seats")
}

// Those who come before the doors open get the page, and go on when they open.
func TestTicketSaleOpens(t *testing.T) {
	page := filepath.Join(t.TempDir(), "waiting.html")
	testcaddy.WriteFile(t, page, blocks(t, "recipes.md", "A ticket sale", "html")[0])
	k := cook(t, "A ticket sale", "/srv/shop/waiting.html", page)
	var commands [][]string
	for line := range strings.Lines(blocks(t, "recipes.md", "A ticket sale", "sh")[0]) {
		commands = append(commands, append(strings.Fields(line)[1:], "--address", k.Admin))
	}
	run := func(command []string) {
		if out, errs, code := testcaddy.Output(t, command...); code != 0 {
			t.Fatalf("%v: exit code %d: %s%s", command, code, out, errs)
		}
	}
	run(commands[0])
	a := want(t, k.get(t, "shop/seats", "Accept", "text/html"), 503, "The queue is paused. You keep your place.")
	k.Nobody()
	run(commands[1])
	cookie := a.Cookies()[0]
	first := k.get(t, "shop/seats", "Accept", "text/html", "Cookie", cookie.Name+"="+cookie.Value)
	k.NextNamed("shop/seats").Leave()
	want(t, first, 200, "served shop/seats")
}
