package recipes

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A visitor of the sale gets the shop's page with its place, keeps the place, and goes
// on; what is static does not wait. Those who come before the doors open get the page, too,
// and go on when they open.
func TestTicketSale(t *testing.T) {
	const heading = "A ticket sale"
	page := filepath.Join(t.TempDir(), "waiting.html")
	testcaddy.WriteFile(t, page, blocks(t, "recipes.md", heading, "html")[0])
	k := cook(t, heading, "concurrency 20", "concurrency 1", "/srv/shop/waiting.html", page)
	commands := strings.Split(strings.TrimSpace(blocks(t, "recipes.md", heading, "sh")[0]), "\n")
	open := func(header ...string) <-chan testcaddy.Answer {
		return k.get(t, "shop/seats", append([]string{"Accept", "text/html"}, header...)...)
	}
	k.run(t, commands[0])
	a := want(t, open(), 503, "The queue is paused. You keep your place.")
	cookie := []string{"Cookie", a.Cookies()[0].Name + "=" + a.Cookies()[0].Value}
	k.Nobody()
	k.run(t, commands[1])
	first := open(cookie...)
	inside := k.Next("shop/seats")
	a = want(t, open("Accept-Language", "de"), 503, "Sie sind als Nächstes dran.")
	cookie[1] = a.Cookies()[0].Name + "=" + a.Cookies()[0].Value
	if !strings.Contains(a.Text, `aria-label="Example Tickets"`) || !strings.Contains(a.Text, "<script>") {
		t.Errorf("the page is %s", a.Text)
	}
	want(t, open(cookie...), 503, "You are next.")
	static := k.get(t, "shop/static/logo.svg")
	k.Next("shop/static/logo.svg").Leave()
	want(t, static, 200, "")
	inside.Leave()
	want(t, first, 200, "served shop/seats")
	second := open(cookie...)
	k.Next("shop/seats").Leave()
	want(t, second, 200, "served shop/seats")
}
