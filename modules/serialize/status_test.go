package serialize

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// remote is a store with the tickets of another process.
type remote struct {
	*memory.Store
	tickets []*serializer.Ticket
}

func (s remote) Follow(events serializer.Events) {
	s.Store.Follow(events)
	for _, t := range s.tickets {
		events.Appeared(t)
	}
}

func statusData(t *testing.T, filter string) *statuspage.Data {
	t.Helper()
	now := time.Now()
	return statuspage.New(now, statusQueues(t.Context(), now), filter)
}

// The page loads nothing, and shows whatever a name contains as text.
func TestStatusAnswers(t *testing.T) {
	configure(t, share(t, "test:answers", inMemory("/answers")), "<!--<script>alert(1)")
	for _, method := range []string{"GET", "HEAD", "POST"} {
		w := httptest.NewRecorder()
		err := new(Status).ServeHTTP(w, httptest.NewRequest(method, "/status", http.NoBody), nil)
		page, mime := w.Body.String(), w.Header().Get("Content-Type")
		if failed, _ := errors.AsType[caddyhttp.HandlerError](err); method == "POST" {
			if failed.StatusCode != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("POST: %v, %v", err, w.Header())
			}
			continue
		}
		if err != nil || mime != "text/html; charset=utf-8" || (method == "HEAD") != (page == "") {
			t.Errorf("%s: %s, %d bytes, %v", method, mime, len(page), err)
		}
		if method == "GET" && (strings.Contains(page, "<script>alert") || !strings.Contains(page, "alert(1)")) {
			t.Error("a name got into the page as markup")
		}
		for _, outside := range []string{"src=", "@import", "url(", "http://", "https://"} {
			if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), outside) {
				t.Errorf("the page has %q; it must load nothing", outside)
			}
		}
	}
}

// A page of very many queues stays small, and says what it leaves out.
func TestStatusOfVeryManyQueues(t *testing.T) {
	shared := share(t, "test:many", inMemory("/many"))
	for i := range 1000 {
		configure(t, shared, "tenant_"+strconv.Itoa(i)+"_")
	}
	defer entered(t, &engines.Ref{Shared: shared}, "tenant_999_").Leave()
	const most = 200 // queues on the page
	data := statusData(t, "TENANT")
	if data.Found != 1000 || len(data.Queues) != most || data.Queues[0].Prefix != "tenant_999_" {
		t.Errorf("%d found, %d shown, the first is %s", data.Found, len(data.Queues), data.Queues[0].Prefix)
	}
	data.Controls = true
	page, err := statuspage.Render(data)
	must(t, err)
	if len(page) > 512<<10 || !strings.Contains(string(page), "Only the first 200 are shown") {
		t.Errorf("the page has %d bytes", len(page))
	}
	t.Logf("the page has %d bytes", len(page))
	if found := statusData(t, "t_999_").Found; found != 1 {
		t.Errorf("the filter finds %d queues; expected 1", found)
	}
}

// Bug: of 224 queues, one was paused and refused requests, and 223 were in trouble: those
// of one prefix share what is counted.
func TestStatusBlamesOneQueue(t *testing.T) {
	const n = 224
	for name, queue := range map[string]func(i int) (path, prefix string){
		"of a directory each":    func(i int) (string, string) { return fmt.Sprintf("/blame/%d", i), "blame_" },
		"of a prefix each":       func(i int) (string, string) { return "/blame", fmt.Sprintf("blame_%d_", i) },
		"of a placeholder value": func(int) (string, string) { return "/blame", "blame_{user}_" },
	} {
		t.Run(name, func(t *testing.T) {
			shared := make(map[string]*engines.Shared)
			for i := range n {
				path, prefix := queue(i)
				if shared[path] == nil {
					shared[path] = share(t, "test:"+path, inMemory(path))
				}
				if strings.Contains(prefix, "{") {
					entered(t, &engines.Ref{Shared: shared[path]}, fmt.Sprintf("blame_%d_", i))
				}
				configure(t, shared[path], prefix)
				registered.prefixOf(prefix)
			}
			path, prefix := queue(n / 2)
			paused := strings.ReplaceAll(prefix, "{user}", strconv.Itoa(n/2))
			must(t, shared[path].Pause(t.Context(), paused, time.Time{}))
			if data := statusData(t, "blame"); data.Troubled != 0 || data.Paused != 1 || data.Queues[0].Prefix != paused {
				t.Errorf("%d in trouble, %d paused, first is %s; expected 0, 1, %s", data.Troubled, data.Paused, data.Queues[0].Prefix, paused)
			}
			report := telemetry.Reporter{Counters: registered.prefixOf(prefix).Counters, Logger: zap.NewNop()}
			report.Refused(&telemetry.Request{Reason: serializer.ReasonTimeout}, http.StatusServiceUnavailable, nil)
			t.Cleanup(func() { registered.prefixes.Delete(prefix) })
			if data := statusData(t, "blame"); data.Troubled != 1 {
				t.Errorf("%d in trouble; expected 1", data.Troubled)
			}
		})
	}
}
