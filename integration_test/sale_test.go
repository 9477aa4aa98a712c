//go:build unix

package integration_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

const salePrograms = 200

// sale is the recipe "A ticket sale": two Caddys behind HAProxy, and a shop.
type sale struct {
	*testing.T
	url     string // of HAProxy
	payment string // of the payment's site
	caddys  [2]*caddy
	files   [2]string // their Caddyfiles
	client  http.RoundTripper
	notes   *testcaddy.Upstream // what comes to the shop
	early   sync.WaitGroup      // until all programs have come before the opening
	left    atomic.Int64        // how many have left
}

func startSale(t *testing.T) *sale {
	haproxy := testcaddy.Need(t, "haproxy", "apt-get install haproxy")
	s := &sale{T: t, notes: testcaddy.NewUpstream(t), client: newClient(t, "1.1").Transport}
	s.payment = strings.Replace("http://"+testcaddy.Serve(t, http.HandlerFunc(s.pay)), "127.0.0.1", "localhost", 1) // another site for browsers
	shop, data, proxy := testcaddy.Serve(t, s), testcaddy.TempDir(t), testprocess.FreeAddr(t)
	s.url = "https://" + proxy
	_, recipe, _ := strings.Cut(readDocument(t, "recipes.md"), "\n## A ticket sale\n")
	blocks := strings.Split(recipe, "```")
	site, options := strings.TrimPrefix(blocks[1], "caddyfile"), strings.TrimPrefix(blocks[3], "caddyfile")
	page, err := filepath.Abs("../examples/sale/waiting.html")
	check(t, err)
	config := strings.NewReplacer(":443", proxy, "/etc/haproxy/example.com.pem", certificate.cert).Replace(readDocument(t, "../examples/sale/haproxy.cfg"))
	for i, addr := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		mine := testprocess.FreeAddr(t)
		config = strings.Replace(config, addr, mine, 1)
		s.files[i] = strings.NewReplacer("{\n\tservers", "{\n\tadmin {$ADMIN}\n\tservers", "10.0.0.10", "127.0.0.1",
			"example.com", strings.Replace(mine, "127.0.0.1", "http://", 1), "/srv/shop/waiting.html", page, "concurrency 200", "concurrency 20",
			"localhost:9000", shop+" {\nheader_up Token {http.serialize.token}\nheader_up Caddy "+mine+"\n}").Replace(options + site)
		// With more time, pages would not come for so long that they learn of another moment late.
		s.caddys[i] = &caddy{t: t, Server: testcaddy.Start(t, s.opensIn(i, 90*time.Second), "XDG_DATA_HOME="+data), dir: filepath.Join(data, "caddy", "queues")}
	}
	file := filepath.Join(data, "haproxy.cfg")
	testcaddy.WriteFile(t, file, config)
	testprocess.Start(t, exec.CommandContext(t.Context(), haproxy, "-db", "-f", file))
	wait.Until(t, "HAProxy answers", func() bool { return s.newCustomer().Does("GET", "/health").StatusCode == http.StatusOK })
	return s
}

// opensIn is the Caddyfile of a Caddy, with an opening after a time.
func (s *sale) opensIn(i int, left time.Duration) string {
	return strings.Replace(s.files[i], "2026-11-27T10:00:00+01:00", time.Now().Add(left).Format(time.RFC3339), 1)
}

// ServeHTTP is the shop.
func (s *sale) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := r.FormValue("number")
	s.notes.ServeHTTP(httptest.NewRecorder(), r) // which reads the rest
	switch r.URL.Path {
	case "/pictures/1", "/pictures/2":
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>`)
	case "/pay":
		w.Header().Set("Orderly-Stay", "15m")
		http.Redirect(w, r, s.payment, http.StatusSeeOther)
	case "/payment/return":
		http.Redirect(w, r, "/order?number="+number, http.StatusSeeOther)
	case "/logout":
		w.Header().Set("Orderly-Leave", "1")
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case "/":
		_, _ = io.WriteString(w, "<!doctype html><title>/</title>")
	default:
		fmt.Fprintf(w, `<!doctype html><title>%s</title><p>%s</p><img src="/pictures/1"><img src="/pictures/2">
<form method="post" action="/pay"></form><form method="post" action="/logout"></form>`, r.URL.Path, r.Header.Get("Token"))
	}
}

// pay is the payment's site. It sends browsers back by a form.
func (s *sale) pay(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `<!doctype html><title>payment</title><form method="post" action="%s/payment/return"><input name="number" value="7"></form>`, s.url)
}

// newCustomer is a program that comes as a browser does.
func (s *sale) newCustomer() *testcaddy.Browser {
	b := testcaddy.NewBrowser(s.T, s.url)
	b.Transport = s.client
	return b
}

// comes opens the shop's page, waits with the waiting page if it has to, and does what people do.
func (s *sale) comes(b *testcaddy.Browser) {
	page := []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate"}
	a := b.Does("GET", "/tickets", page...)
	if !strings.Contains(a.Text, "It opens:") {
		s.Errorf("before the opening, a program gets %v", a)
	}
	s.early.Done()
	for ; a.Header.Get("Refresh") != ""; a = b.Does("GET", "/tickets", page...) {
		for waits := true; waits; waits = strings.Contains(a.Text, `"number"`) {
			a = b.Does("GET", "/tickets", "Accept", "text/html", "Orderly-Place", "ask")
		}
	}
	answers := []string{a.Status}
	for _, path := range []string{"/pictures/1", "/pictures/2", "/cart", "/pay", "/order", "/logout"} {
		answers = append(answers, b.Does("POST", path).Status)
	}
	if slices.ContainsFunc(answers, func(a string) bool { return a != "200 OK" && a != "303 See Other" }) {
		s.Errorf("a visitor gets %q", answers)
	}
	s.left.Add(1)
}

// Programs and browsers come before the opening, are drawn, visit, pay elsewhere and log out.
// Bug: nobody but the first visitors got in, since no visit ended before it was idle.
func TestTicketSale(t *testing.T) {
	t.Parallel()
	s := startSale(t)
	outside := []string{"/", "/health", "/payment/return", "/robots.txt", "/static/logo.svg", "/webhooks/paid"}
	for _, path := range outside {
		s.newCustomer().Does("GET", path)
	}
	buyer := s.opens(openPage(t))
	buyer.until(`document.querySelector('[aria-label="Example Tickets"]') && document.body.innerText.includes("It opens:")`)
	var programs sync.WaitGroup
	t.Cleanup(programs.Wait)
	s.early.Add(salePrograms)
	for range salePrograms {
		programs.Go(func() { s.comes(s.newCustomer()) })
	}
	s.early.Wait()
	for i, c := range s.caddys {
		check(t, c.Load("text/caddyfile", s.opensIn(i, 2*time.Second)))
	}
	buyer.until("document.title === '/tickets' && document.images.length === 2 && [...document.images].every(i => i.naturalWidth > 0)")
	var token, now string
	buyer.run("document.querySelector('p').innerText", &token)
	for range 2 { // bug: the balancer sent every second one to another Caddy, since the return has no cookies
		buyer.run("document.forms[0].submit()", nil)
		buyer.until("document.title === 'payment'")
		buyer.run("document.forms[0].submit()", nil)
		buyer.until("document.title === '/order' && location.search === '?number=7'")
	}
	wait.Until(t, "each logout has let the next one in", func() bool { return s.left.Load() == salePrograms })
	if buyer.run("document.querySelector('p').innerText", &now); now != token {
		t.Errorf("after the payment, the turn is %s; it was %s", now, token)
	}
	tab := s.opens(buyer.newTab())
	tab.until("document.querySelector('p').innerText === '" + token + "'")
	s.caddys[0].awaitQueue("sale_", 1, 0)
	tab.run("document.forms[1].submit()", nil)
	tab.until("document.title === '/'")
	s.caddys[0].awaitQueue("sale_", 0, 0)
	turns, free, by := make(testcaddy.Turns), make(map[string]bool), make(map[string]int)
	for _, hit := range s.notes.Hits() {
		by[hit.Header.Get("Caddy")]++
		if token := hit.Header.Get("Token"); strings.HasPrefix(token, "{") { // an unknown placeholder
			free["/"+hit.Name] = true
		} else {
			turns.Saw(token, hit.Left)
		}
	}
	most := turns.MostAtOnce()
	if t.Logf("%d turns, %d at once, %v", len(turns), most, by); most > 20 || len(by) != 2 {
		t.Errorf("expected 20 turns at once at most, by both Caddys")
	}
	if got := slices.Sorted(maps.Keys(free)); !slices.Equal(got, outside) {
		t.Errorf("without a turn: %q; expected %q", got, outside)
	}
}

// opens goes to the shop's page in an empty one, which trusts the certificate. Bug: a tab that did not was
// served only where it could use a connection of another one.
func (s *sale) opens(b *browser) *browser {
	b.call("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil)
	b.goTo(s.url + "/tickets")
	return b
}
