package integration_test

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// newStatusSite is a site whose every request is queued, except for the status
// page.
func newStatusSite(t *testing.T) *site {
	t.Helper()
	s := unstartedSite(t)
	text := s.caddyfile("queue_length 1")
	s.start(t, strings.Replace(text, "{\n", "{\n\tserialize_status /status\n", 1))
	return s
}

func TestStatusTellsOfQueues(t *testing.T) {
	t.Parallel()
	s := newStatusSite(t)
	one, inside, two, _ := s.holderAndWaiter(t, s)
	testcaddy.Get(t, s.url+"three").Want(t, http.StatusServiceUnavailable)
	wants := func(texts ...string) {
		t.Helper()
		page := testcaddy.Get(t, s.url+"status").Text
		for _, text := range texts {
			if !strings.Contains(page, text) {
				t.Errorf("the page has no %q:\n%s", text, page)
			}
		}
	}
	wants(">1 <small>of 1</small>", ">full<", "The queue is full: 1 wait", "Refused: queue_full ", "(1 since the start)", ">inside for ", ">waiting for ")
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
	wants(">refusing<", "2 entered") // also while nobody waits

	// What was counted outlives the configuration.
	s.Reload(t, strings.Replace(s.caddyfile("timeout 5s"),
		"{\n", "{\n\tserialize_status /status\n", 1))
	wants(">refusing<", "2 entered")
}

// The page shows the requests of browsers that wait without a connection.
func TestStatusShowsPlacesOfBrowsers(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	s.start(t, strings.Replace(s.waitingCaddyfile("after 0\nhold 10m", ""), "{\n", "{\n\tserialize_status /status\n", 1))
	leave := s.occupy(t)
	defer leave()
	newVisitor(s).waits(t, "mine")
	wait.Until(t, "the page has the request", func() bool {
		return strings.Contains(testcaddy.Get(t, s.url+"status").Text, s.host+"/mine")
	})
}

func TestStatusAnswers(t *testing.T) {
	t.Parallel()
	s := newStatusSite(t)
	for _, c := range []struct {
		method, path, accept string
		status               int
		mime                 string
	}{
		{"GET", "status", "", 200, "text/html; charset=utf-8"},
		{"GET", "status", "text/html,application/xhtml+xml,*/*;q=0.8", 200, "text/html; charset=utf-8"},
		{"HEAD", "status", "", 200, "text/html; charset=utf-8"},
		{"POST", "status", "", 405, ""},
	} {
		a := testcaddy.Await(t, testcaddy.Send(t, c.method, s.url+c.path, "", "Accept", c.accept))
		if a.StatusCode != c.status || a.Header.Get("Content-Type") != c.mime || (c.method == "HEAD") != (len(a.Text) == 0) && c.status == 200 {
			t.Errorf("%s %s, Accept %q: %d %s, %d bytes", c.method, c.path, c.accept, a.StatusCode, a.Header.Get("Content-Type"), len(a.Text))
		}
		if c.status == 405 && a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow is %q", a.Header.Get("Allow"))
		}
	}
	page := testcaddy.Get(t, s.url+"status").Text
	for _, outside := range []string{"src=", "@import", "url(", "http://", "https://"} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), outside) {
			t.Errorf("the page has %q; it must load nothing", outside)
		}
	}
}

// Whatever a name contains, the page shows it as text.
func TestStatusEscapesNames(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	text := strings.Replace(s.caddyfile(""), "prefix a_", "prefix `<!--<script>alert(1)`", 1)
	s.start(t, strings.Replace(text, "{\n", "{\n\tserialize_status /status\n", 1))
	if page := testcaddy.Get(t, s.url+"status").Text; strings.Contains(page, "<script>alert") || !strings.Contains(page, "alert(1)") {
		t.Error("a name got into the page as markup")
	}
}

// checkPicture makes sure that a page has the right background, and something on
// it.
func checkPicture(text []byte, dark bool) error {
	picture, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	ground := color.GrayModel.Convert(picture.At(2, 2)).(color.Gray).Y
	if (ground < 128) != dark {
		return fmt.Errorf("the background's brightness is %d", ground)
	}
	colors := make(map[color.Color]bool)
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			colors[picture.At(x, y)] = true
		}
	}
	if len(colors) < 20 {
		return fmt.Errorf("there are only %d colors; the page is empty", len(colors))
	}
	return nil
}

// The controls accept requests only from the page: its reader is logged in, and another
// site could send requests in the reader's name.
func TestStatusControls(t *testing.T) {
	t.Parallel()
	s := manyQueues(t, "", "checkout_")
	one := s.send(t, "GET", "0/one")
	inside := s.NextNamed("0/one")
	two := s.send(t, "GET", "0/two")
	s.awaitAll(t, 2)
	queue := s.queues(t)[0]
	order := func(action, token string) string {
		return url.Values{"action": {action}, "queue": {queue.Path + "/" + queue.Prefix}, "token": {token}}.Encode()
	}
	waiting, own := queue.Tickets[1].Token, strings.TrimSuffix(s.url, "/")
	for _, c := range []struct {
		name, order, site, origin string
		status                    int
		says                      string
	}{
		{"another site", order("evict", waiting), "cross-site", "https://evil.example", 403, "another origin"},
		{"another site that says it is none", order("evict", waiting), "none", "", 403, "another origin"},
		{"a neighbour", order("evict", waiting), "same-site", "", 403, "another origin"},
		{"another site, by an older browser", order("evict", waiting), "", "https://evil.example", 403, "another origin"},
		{"a sandboxed page", order("evict", waiting), "", "null", 403, "another origin"},
		{"nobody knows who", order("evict", waiting), "", "", 403, "admin API"},
		{"an action that is not there", order("burn", waiting), "same-origin", own, 400, "burn"},
		{"no number", order("evict", "x"), "same-origin", own, 400, "number"},
		{"no such ticket", order("evict", "1"), "same-origin", own, 404, "no ticket 1 in queue"},
		{"no such queue", "action=evict&queue=/x&token=1", "same-origin", own, 404, "no ticket 1 in queue /x"},
		{"the page", order("evict", waiting), "same-origin", own, 200, `"state":"waiting"`},
		{"the page in an older browser", order("evict", queue.Tickets[0].Token), "", own, 200, `"state":"inside"`},
	} {
		var header []string
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				header = append(header, name, value)
			}
		}
		a := testcaddy.Await(t, testcaddy.Send(t, "POST", s.url+"status?"+c.order, "", header...))
		if a.StatusCode != c.status || !strings.Contains(a.Text, c.says) || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s; expected %d with %q", c.name, a.StatusCode, a.Text, c.status, c.says)
		}
	}
	testcaddy.Await(t, one)
	testcaddy.Await(t, two)
	inside.Leave()
	a := testcaddy.Await(t, testcaddy.Send(t, "DELETE", s.url+"status", ""))
	if a.StatusCode != 405 || a.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("DELETE: %d, Allow: %s", a.StatusCode, a.Header.Get("Allow"))
	}
}
