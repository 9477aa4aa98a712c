package orderly_test

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// newStatusSite is a site whose every request stands in line, but for the
// status page.
func newStatusSite(t *testing.T) *site {
	t.Helper()
	place, addr := testcaddy.NewPlace(t), testcaddy.FreeAddr(t)
	s := &site{Place: place, url: "http://" + addr + "/", dir: t.TempDir()}
	text := queueSite(addr, place.Addr, s.dir, "queue_length 1")
	s.Server = testcaddy.Start(t, strings.Replace(text, "{\n", "{\n\tserialize_status /status\n", 1))
	return s
}

type statusJSON struct {
	Queues []struct {
		Prefix          string
		Paths           []string
		Inside, Waiting int
		Outcomes        map[string]int
		Recent          struct {
			Entered, Refused []int
			Longest          []float64 `json:"wait_longest_ms"`
		}
	}
	Lines []struct{ Prefix string }
}

func (s *site) status(t *testing.T) (data statusJSON) {
	t.Helper()
	fromJSON(t, testcaddy.Get(t, s.url+"status", "Accept", "application/json").Text, &data)
	return data
}

func TestStatusTellsOfQueues(t *testing.T) {
	t.Parallel()
	s := newStatusSite(t)
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	two := s.send(t, "GET", "two")
	s.awaitTickets(t, 2)
	if a := testcaddy.Get(t, s.url+"three"); a.StatusCode != 500 {
		t.Fatalf("the third request got %d; expected its refusal", a.StatusCode)
	}
	q := s.status(t).Queues[0]
	if q.Prefix != "a_" || q.Inside != 1 || q.Waiting != 1 || q.Outcomes["queue_full"] != 1 || total(q.Recent.Refused) != 1 || total(q.Recent.Entered) != 1 {
		t.Errorf("status is %+v; expected one inside, one waiting, one refused", q)
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)

	// What was counted outlives the configuration.
	s.Reload(strings.Replace(queueSite(strings.Trim(strings.TrimPrefix(s.url, "http:"), "/"), s.Place.Addr, s.dir, "timeout 5s"),
		"{\n", "{\n\tserialize_status /status\n", 1))
	data := s.status(t)
	q = data.Queues[0]
	if len(data.Queues) != 1 || len(data.Lines) != 0 || q.Inside != 0 || q.Waiting != 0 || total(q.Recent.Entered) != 2 || q.Outcomes["entered"] != 2 {
		t.Errorf("after a reload the status is %+v", data)
	}
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

// Whatever is in a name, it stays text.
func TestStatusEscapesNames(t *testing.T) {
	t.Parallel()
	place, addr := testcaddy.NewPlace(t), testcaddy.FreeAddr(t)
	text := queueSite(addr, place.Addr, t.TempDir(), "")
	text = strings.Replace(text, "prefix a_", "prefix `<!--<script>alert(1)`", 1)
	testcaddy.Start(t, strings.Replace(text, "{\n", "{\n\tserialize_status /status\n", 1))
	if page := testcaddy.Get(t, "http://"+addr+"/status").Text; strings.Contains(page, "<script>alert") || !strings.Contains(page, "alert(1)") {
		t.Error("a name got into the page as markup")
	}
}

// look opens a page in a real browser.
func look(t *testing.T, url string, args ...string) []byte {
	t.Helper()
	browser := testcaddy.Need(t, "chromium", "apt-get install chromium")
	args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=3000", "--user-data-dir=" + t.TempDir()}, args...)
	cmd := exec.CommandContext(t.Context(), browser, append(args, url)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running chromium: %v", err)
	}
	return out
}

func TestStatusInBrowser(t *testing.T) {
	t.Parallel()
	testcaddy.Need(t, "chromium", "apt-get install chromium")
	s := newStatusSite(t)
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	two := s.send(t, "GET", "two")
	s.awaitTickets(t, 2)

	// The page's policy lets its own script run: the browser has filled it.
	dom := string(look(t, s.url+"status", "--dump-dom"))
	for _, want := range []string{
		`<h2 class="name">a_</h2>`, "1 inside, 1 waiting", `class="badge is-inside"`, `class="badge is-waiting"`,
		`class="bar-mean"`, ">live<", "Waiting times of the last 10 minutes: 1 entered",
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the browser does not show %s:\n%s", want, dom)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		dark bool
	}{
		{"light", []string{"--window-size=1200,800"}, false},
		{"dark", []string{"--window-size=1200,800", "--blink-settings=preferredColorScheme=0"}, true},
		{"phone", []string{"--window-size=500,900"}, false},
	} {
		file := filepath.Join(t.TempDir(), c.name+".png")
		look(t, s.url+"status", append(c.args, "--screenshot="+file)...)
		if err := checkPicture(file, c.dark); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}

// checkPicture makes sure that a page has the right ground, and something on it.
func checkPicture(file string, dark bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	ground := color.GrayModel.Convert(picture.At(2, 2)).(color.Gray).Y
	if (ground < 128) != dark {
		return fmt.Errorf("the ground's brightness is %d", ground)
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
