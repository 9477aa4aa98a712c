package uniqueid_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// withID gives each request an ID, in the response and in its log lines. A trusted server
// in front, such as Caddy with unique_ids, may have made the ID.
func withID(log *slog.Logger, next func(http.ResponseWriter, *http.Request, *slog.Logger)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := uniqueid.ParseTXID(r.Header.Get("X-Request-Id"))
		if err != nil {
			id = uniqueid.NewTXID()
		}
		w.Header().Set("X-Request-Id", id.String())
		next(w, r, log.With("txid", id))
	}
}

// A server whose log lines have the ID of their request.
func Example_logs() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	handler := withID(log, func(_ http.ResponseWriter, r *http.Request, log *slog.Logger) {
		log.Info("order placed", "path", r.URL.Path)
	})
	// A real one: http.ListenAndServe("localhost:8080", handler)
	request := httptest.NewRequest("POST", "/orders", nil)
	request.Header.Set("X-Request-Id", "cbpvimguo4hkaps9lf6g")
	handler(httptest.NewRecorder(), request)
	// Output: {"level":"INFO","msg":"order placed","txid":"cbpvimguo4hkaps9lf6g","path":"/orders"}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
