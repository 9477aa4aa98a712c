package serialize

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// failing is a store that cannot be read.
type failing struct{ *memory.Store }

func (f failing) Sync(context.Context) error {
	return &serializer.StorageError{Op: "listing lock directory", Path: f.Path(), Err: errors.New("no such file")}
}

// inMemory is a store with the path of another one.
func inMemory(path string) *memory.Store { return memory.New(memory.Options{Path: path}) }

// share puts an engine on a store into the pool until the end of the test.
func share(t *testing.T, key string, store serializer.Store) *engines.Shared {
	t.Helper()
	return opened(t, testModule{key, func() (serializer.Store, error) { return store, nil }}, store.Path()).Shared
}

// testModule opens an engine by a function.
type testModule struct {
	key  string
	open func() (serializer.Store, error)
}

func (testModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: engines.Namespace + ".test"}
}

func (m testModule) Where(string) (key, space string) { return m.key, m.key }

func (m testModule) Open(string, *slog.Logger) (serializer.Store, error) { return m.open() }

// configure adds a handler of a prefix until the end of the test.
func configure(t *testing.T, e *engines.Shared, prefix string) {
	t.Helper()
	s := &Handler{Prefix: prefix, Concurrency: 1, engine: &engines.Ref{Shared: e}, line: new(waitingpage.Line)}
	s.derive()
	registered.handlers.Store(s, true)
	t.Cleanup(func() { registered.handlers.Delete(s) })
}

// A directory that fails does not hide the queues of others, and never looks
// like an empty queue. Bugs: the whole list was answered with 500; of an eviction in another
// directory, or by another server with the same path, the answer was 504 although the ticket was out.
func TestAdminWithFailingEngine(t *testing.T) {
	configure(t, share(t, "test:fails", failing{inMemory("/gone")}), "b_")
	working := share(t, "test:works", inMemory("/works"))
	defer entered(t, &engines.Ref{Shared: working}, "a_").Leave()
	working.Join(serializer.Arrival{Queue: "a_"}, func(serializer.Turn, error) {})
	states, _ := working.Queues(t.Context())
	for _, c := range []struct {
		path   string
		status int
		says   string
	}{
		{"", 200, `"prefix":"a_","limit":1,"inside":1`},
		{"", 200, `{"path":"/gone","prefix":"b_","limit":1,"inside":0,"waiting":0,"tickets":[],"error":"listing lock directory /gone: no such file"}`},
		{"/%2Fworks%2Fa_", 200, `"inside":1`},
		{"/b_", 500, "/gone"},
		{"/%2Fworks%2Fb_", 404, "no queue"},
	} {
		if status, text := ask(t, "GET", c.path); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("GET %s: %d %s; expected %d with %s", c.path, status, text, c.status, c.says)
		}
	}
	data := statuspage.New(time.Now(), statusQueues(t.Context(), time.Now()), "_")
	if len(data.Queues) != 2 || data.Queues[0].Error == "" || data.Queues[1].Inside != 1 {
		t.Errorf("the status page has %+v; expected two queues, the first one with an error", data.Queues)
	}
	share(t, "test:fails, too", failing{inMemory("/works")})
	if status, text := ask(t, "DELETE", "/a_/"+states[0].Tickets[1].Token); status != 200 || !strings.Contains(text, "its request is refused") {
		t.Errorf("an eviction: %d %s", status, text)
	}
}

// silent is a store whose server does not answer. It notes that another was asked at the same time.
type silent struct {
	*memory.Store
	asked, together chan struct{}
}

func (s silent) Sync(ctx context.Context) error {
	select {
	case s.asked <- struct{}{}:
	case <-s.asked:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.together <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silent) Pause(ctx context.Context, _ string, _ time.Time) error { <-ctx.Done(); return ctx.Err() }

// Bugs: if a server was silent, no engine's queues were listed until its lease was lost, and engines
// were asked one after another, and paused, when a queue was paused: no time was left. At its end,
// Caddy did not close engines of earlier configurations, which requests still used.
func TestSilentEngines(t *testing.T) {
	asked, together := make(chan struct{}), make(chan struct{}, 4)
	var e *engines.Shared
	for _, prefix := range []string{"c_", "d_"} {
		e = share(t, "test:"+prefix, silent{inMemory(prefix), asked, together})
		configure(t, e, prefix)
	}
	if _, text := ask(t, http.MethodGet, ""); strings.Count(text, `"error":"no answer within 1s"`) != 2 || len(together) != 2 {
		t.Errorf("%d were asked together: %s", len(together), text)
	}
	works := share(t, "test:works", inMemory("/works"))
	configure(t, works, "f_")
	if status, text := ask(t, http.MethodPost, "/f_/pause"); status != 200 || len(together) != 4 {
		t.Errorf("%d: a pause: %d %s", len(together), status, text)
	}
	configure(t, works, "d_")
	if status, text := ask(t, http.MethodPost, "/d_/pause"); status != 500 || works.PausedUntil("d_") == nil {
		t.Errorf("a pause that a silent server has, too: %d %s", status, text)
	}
	engines.CloseAll()
	if _, err := e.Enter(t.Context(), serializer.Arrival{Queue: "e_"}); !errors.Is(err, serializer.ErrClosed) {
		t.Errorf("a closed engine: %v", err)
	}
}

// Bug: while an engine was opened, whose server may be silent, lists waited for that, and so did
// requests that had their turn where another engine has the same directory.
func TestEngineThatIsOpened(t *testing.T) {
	_, _ = engines.Open(testModule{"test:opening", func() (serializer.Store, error) {
		listed := make(chan struct{})
		go func() { defer close(listed); engines.All() }()
		select {
		case <-listed:
		case <-time.After(wait.Patience):
			t.Error("others wait")
		}
		return nil, errors.New("it cannot be opened")
	}}, "/opening", slog.New(slog.DiscardHandler))
}

// ask sends a request to the admin API's handlers, as Caddy does.
func ask(t *testing.T, method, path string) (status int, text string) {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range (AdminAPI{}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			err := route.Handler.ServeHTTP(w, r)
			if api, ok := errors.AsType[caddy.APIError](err); ok {
				w.WriteHeader(api.HTTPStatus)
				_ = json.NewEncoder(w).Encode(map[string]string{"error": api.Err.Error()})
			}
		})
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, queueview.Path+path, nil))
	return w.Code, w.Body.String()
}
