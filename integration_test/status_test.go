package integration_test

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
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

type statusJSON struct {
	Found, Total int
	Queues       []struct {
		Prefix          string
		Paths           []string
		Limit           int
		Length          int `json:"queue_length"`
		Inside, Waiting int
		OldestWaiting   float64 `json:"oldest_waiting_seconds"`
		Trouble         []string
		Outcomes        map[string]int
		Tickets         []struct{ Token string }
		Recent          struct {
			Entered, Refused []int
			Longest          []float64 `json:"wait_longest_ms"`
		}
	}
}

func (s *site) status(t *testing.T) (data statusJSON) {
	t.Helper()
	fromJSON(t, testcaddy.Get(t, s.url+"status", "Accept", "application/json").Text, &data)
	return data
}

func TestStatusTellsOfQueues(t *testing.T) {
	t.Parallel()
	s := newStatusSite(t)
	one, inside, two, _ := s.holderAndWaiter(t, s)
	testcaddy.Get(t, s.url+"three").Want(t, 503)
	q := s.status(t).Queues[0]
	if q.Prefix != "a_" || q.Inside != 1 || q.Waiting != 1 || q.Outcomes["queue_full"] != 1 || total(q.Recent.Refused) != 1 || total(q.Recent.Entered) != 1 {
		t.Errorf("status is %+v; expected one inside, one waiting, one refused", q)
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)

	// What was counted outlives the configuration.
	s.Reload(t, strings.Replace(s.caddyfile("timeout 5s"),
		"{\n", "{\n\tserialize_status /status\n", 1))
	data := s.status(t)
	q = data.Queues[0]
	if len(data.Queues) != 1 || len(q.Tickets) != 0 || q.Inside != 0 || q.Waiting != 0 || total(q.Recent.Entered) != 2 || q.Outcomes["entered"] != 2 {
		t.Errorf("after a reload the status is %+v", data)
	}
}

// The page shows which places are kept for browsers, and what those browsers do.
func TestStatusShowsPlacesOfBrowsers(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	s.start(t, strings.Replace(s.waitingCaddyfile("after 0\nhold 10m", ""), "{\n", "{\n\tserialize_status /status\n", 1))
	leave := s.occupy(t)
	plain := s.send(t, "POST", "plain")
	s.awaitTickets(t, 2)
	b := newVisitor(s)
	b.waits(t, "mine")
	b.waits(t, "mine")
	s.awaitTickets(t, 3)
	s.wantStatus(t, ">waiting</span></td>", `>waiting</span> <span class="soft">page seen `, "<dt>Places kept for browsers</dt><dd>1</dd>")
	events := s.follow(t, b)
	s.wantStatus(t, `>waiting</span> <span class="soft">live page</span>`)
	leave()
	s.NextNamed("plain").Leave()
	testcaddy.Await(t, plain)
	for event := range events {
		if event == "turn" {
			break
		}
	}
	s.wantStatus(t, `>inside</span> <span class="soft">waits for its browser</span>`)
	mine := b.going(t, "mine")
	in := s.NextNamed("mine")
	s.wantStatus(t, ">inside</span></td>")
	in.Leave()
	wantServed(t, b.take(t, mine), "mine")
}

// wantStatus waits until the status page has some texts.
func (s *site) wantStatus(t *testing.T, texts ...string) {
	t.Helper()
	wait.Eventually(t, "the status page is right", func() error {
		page := testcaddy.Get(t, s.url+"status", "Accept", "text/html").Text
		for _, text := range texts {
			if !strings.Contains(page, text) {
				_, page, _ = strings.Cut(page, "<main")
				return fmt.Errorf("the status page has no %s:\n%s", text, page)
			}
		}
		return nil
	})
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
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
		{"GET", "status", "application/json", 200, "application/json"},
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
		return fmt.Sprintf(`{"action":%q,"queue":%q,"token":%q}`, action, queue.Path+"/"+queue.Prefix, token)
	}
	waiting, own := queue.Tickets[1].Token, strings.TrimSuffix(s.url, "/")
	const mime = "application/json"
	for _, c := range []struct {
		name, body, mime, site, origin string
		status                         int
		says                           string
	}{
		{"another site", order("evict", waiting), mime, "cross-site", "https://evil.example", 403, "another origin"},
		{"another site that says it is none", order("evict", waiting), mime, "none", "", 403, "another origin"},
		{"a neighbour", order("evict", waiting), mime, "same-site", "", 403, "another origin"},
		{"another site, by an older browser", order("evict", waiting), mime, "", "https://evil.example", 403, "another origin"},
		{"a sandboxed page", order("evict", waiting), mime, "", "null", 403, "another origin"},
		{"nobody knows who", order("evict", waiting), mime, "", "", 403, "admin API"},
		{"a form", order("evict", waiting), "text/plain", "same-origin", own, 415, mime},
		{"no JSON", "evict", mime, "same-origin", own, 400, "reading the request"},
		{"too long", strings.Repeat(" ", 65<<10) + order("evict", waiting), mime, "same-origin", own, 400, "too large"},
		{"an action that is not there", order("burn", waiting), mime, "same-origin", own, 400, "burn"},
		{"no number", order("evict", "x"), mime, "same-origin", own, 400, "number"},
		{"no such ticket", order("evict", "1"), mime, "same-origin", own, 404, "has no ticket 1"},
		{"no such queue", `{"action":"evict","queue":"/x","token":"1"}`, mime, "same-origin", own, 404, "no queue /x"},
		{"the page", order("evict", waiting), mime, "same-origin", own, 200, `"state":"waiting"`},
		{"the page in an older browser", order("evict", queue.Tickets[0].Token), mime, "", own, 200, `"state":"inside"`},
	} {
		header := []string{"Content-Type", c.mime}
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				header = append(header, name, value)
			}
		}
		a := testcaddy.Await(t, testcaddy.Send(t, "POST", s.url+"status", c.body, header...))
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
