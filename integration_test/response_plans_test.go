//go:build unix

package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// planned answers as the seed in its query says: it writes, flushes and gives a status at
// random, and may break the answer off.
func planned(w http.ResponseWriter, r *http.Request) {
	seed, _ := strconv.ParseUint(r.URL.Query().Get("seed"), 10, 64)
	g := rand.New(rand.NewPCG(seed, 0))
	chance := func(n int) bool { return g.IntN(n) == 0 }
	size := func() int { return []int{0, 1, 100, 2048, 4096, 20_000, 200_000}[g.IntN(7)] }
	head := w.Header()
	head["Date"] = nil // which differs
	head.Set("Trailer", "X-Declared")
	head.Set("Content-Type", []string{"text/x-test", "text/x-test", "text/event-stream"}[g.IntN(3)])
	if chance(4) {
		w.WriteHeader(http.StatusEarlyHints)
	}
	if chance(3) {
		w.WriteHeader([]int{200, 201, 404, 500, 204, 304}[g.IntN(6)])
	}
	for i := range g.IntN(8) {
		_, _ = w.Write(bytes.Repeat([]byte{'a' + byte(i)}, size()))
		if chance(2) {
			_ = http.NewResponseController(w).Flush()
		}
		head.Set("X-Late", "late")
	}
	head.Set("X-Declared", "declared")
	head.Set(http.TrailerPrefix+"X-Undeclared", "undeclared")
	if chance(8) {
		panic(http.ErrAbortHandler)
	}
}

// Whatever an upstream does, a client gets the same status, header, bytes and trailers as without
// a queue. Bug: over HTTP/3, trailers brought back fields that directives around had deleted.
func TestResponseIsTheSame(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(planned))
	var site strings.Builder
	for path, queue := range map[string]string{"none": "", "kept": "%s\n}", "small": "%s\nresponse_buffer 1KiB\n}", "off": "%s\nresponse_buffer 0\n}"} {
		fmt.Fprintf(&site, "handle /%s {\n%s\nreverse_proxy {$UPSTREAM}\n}\n", path, strings.ReplaceAll(queue, "%s", "serialize {\npath {$DIR}\nprefix "+path))
	}
	c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: "header -Via\n" + site.String()})
	first := rand.Uint64N(1 << 32)
	allVersions(t, func(t *testing.T, client *http.Client) {
		ask := func(path string, seed uint64) (complete bool, header, body string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/%s?seed=%d", c.url, path, seed), http.NoBody)
			check(t, err)
			resp, err := client.Do(r)
			if err != nil {
				return false, "", ""
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			resp.Header.Del("Date")
			resp.Header.Del("Content-Length") // which a server announces if it knows the length in time
			return err == nil, fmt.Sprint(resp.StatusCode, resp.Header, resp.Trailer), string(text)
		}
		for seed := first; seed < first+40; seed++ {
			complete, header, body := ask("none", seed)
			for _, path := range []string{"kept", "small", "off"} {
				isComplete, gotHeader, got := ask(path, seed)
				// How much of an answer comes before it breaks off depends on time.
				if isComplete != complete || complete && (gotHeader != header || got != body) || !complete && len(got) > len(body) && !strings.HasPrefix(got, body) {
					t.Errorf("seed %d, %s: complete %t, %s, %d bytes; without a queue %t, %s, %d bytes",
						seed, path, isComplete, gotHeader, len(got), complete, header, len(body))
				}
			}
		}
	})
}
