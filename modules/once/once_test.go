//go:build unix

package once_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

func init() {
	caddy.RegisterModule(otherProxy{})
	httpcaddyfile.RegisterDirectiveOrder("other_proxy", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterHandlerDirective("other_proxy", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		args := h.RemainingArgs()
		status, err := strconv.Atoi(args[1])
		return &otherProxy{To: args[0], Status: status}, err
	})
	testcaddy.RunIfCaddy() // the test binary is Caddy as well
}

func TestMain(m *testing.M) {
	wait.InParallel()
	os.Exit(m.Run())
}

// shop is an upstream that counts effects by key. The query of a request says what to do with it, and
// has fields of the answer.
type shop struct {
	addr string
	fcgi string // where it speaks FastCGI

	mu      sync.Mutex
	effects map[string]int
}

func newShop(t *testing.T) *shop {
	s := &shop{effects: make(map[string]int)}
	server := httptest.NewUnstartedServer(s)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.addr = server.Listener.Addr().String()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s.fcgi = listener.Addr().String()
	go func() { _ = fcgi.Serve(listener, s) }()
	return s
}

func (s *shop) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[key]
}

// raw are answers by what is done, after which the connection ends.
var raw = map[string]string{
	"part":    "HTTP/1.1 200 OK\r\nContent-Le",
	"upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n",
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	key, query := r.Header.Get("Idempotency-Key"), r.URL.Query()
	key = cmp.Or(key, query.Get("key"))
	s.mu.Lock()
	s.effects[key]++
	n := s.effects[key]
	s.mu.Unlock()
	for name := range query {
		if name == http.CanonicalHeaderKey(name) {
			w.Header().Set(name, query.Get(name))
		}
	}
	if text := raw[query.Get("do")]; text != "" {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
		return
	}
	switch query.Get("do") {
	case "wait":
		<-r.Context().Done()
		return
	case "break":
		panic(http.ErrAbortHandler)
	case "half":
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "hints":
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}
	status := query.Get("status")
	if n > 1 {
		status = cmp.Or(query.Get("then"), status)
	}
	if status, err := strconv.Atoi(status); err == nil {
		w.WriteHeader(status)
	}
	size, _ := strconv.Atoi(query.Get("size"))
	fmt.Fprintf(w, "%d%s", n, strings.Repeat("x", max(0, size-1)))
}

// otherProxy is the proxy of Go's library, which answers its errors itself.
type otherProxy struct {
	To     string `json:"to"`
	Status int    `json:"status"` // of errors; with 0, it panics
}

func (otherProxy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.other_proxy", New: func() caddy.Module { return new(otherProxy) }}
}

var kept http.Transport // so that connections are kept

func (p *otherProxy) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: p.To})
	proxy.Transport = &kept
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if p.Status == 0 {
			panic(err)
		}
		w.WriteHeader(p.Status)
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// site is a Caddy with one site or more.
type site struct {
	*testcaddy.Server
	t        *testing.T
	url      string
	settings testcaddy.Settings
}

// newSite starts a Caddy with a site that has these lines.
func newSite(t *testing.T, lines string) *site {
	t.Helper()
	return newSites(t, map[string]string{"": lines})
}

// newSites starts a Caddy with sites that have lines, by their hosts.
func newSites(t *testing.T, lines map[string]string) *site {
	t.Helper()
	addr := testprocess.FreeAddr(t)
	s := &site{t: t, url: "http://" + addr, settings: testcaddy.Settings{
		Caddyfile: "{\nadmin {$ADMIN}\nmetrics\n}\n", Admin: testprocess.FreeAddr(t), Home: testcaddy.TempDir(t),
	}}
	for host, lines := range lines {
		s.settings.Caddyfile += "http://" + host + strings.TrimPrefix(addr, "127.0.0.1") + " {\n" + lines + "\n}\n"
	}
	testcaddy.WriteFile(t, filepath.Join(s.settings.Home, "index.php"), "")
	s.start()
	return s
}

func (s *site) start() {
	s.Server = testcaddy.Launch(s.t, s.settings)
	s.AwaitLoaded()
}

const (
	repeated = "repeated" // by the record
	runs     = "runs"     // the key was freed
)

// What a repetition gets after whatever the handlers behind have done: the first answer, a
// refusal with a reason, or an answer of its own, since the key is free.
//
// Bug: after an interim answer by HTTP/2, an upstream's 503 or 429 did not free the key. Bug: an answer that a
// handler had written in place of the upstream's freed the key, if its status does, also if the upstream had
// answered 500. So did an error after another proxy, and the status of an upstream after another one's 500 or 201.
// Bug: a name that was not found kept PHP's key. Bug: over FastCGI, also after an answer by HTTP, in an error route,
// when the request came again after its answer, and when only a part of a head had come, the upstream acted twice.
// Bug: a repetition had other bytes in a field that is no UTF-8. Bug: a TLS handshake that failed did not free the
// key, though nothing had been sent. Bug: a second key made the first one forget what an upstream had answered.
// Bug: one in an error route did not, and the key of a request that nothing had been sent of was in doubt.
// Bug: error pages learnt nothing of doubt.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dead := testprocess.FreeAddr(t)
	elsewhere := strings.NewReplacer("127.0.0.1", "localhost").Replace // what Caddy takes for others
	with := func(setting string) string {
		return "once {\nscope none\nmax_response 1000\nrepeat_header X-Order Set-Cookie\n" + setting + "}\n"
	}
	to := func(addrs, block string) string { return "reverse_proxy " + addrs + " {\n" + block + "\n}\n" }
	other := func(addr string, status int) string { return fmt.Sprintf("other_proxy %s %d\n", addr, status) }
	line, free, proxy := with(""), with("free_errors\n"), "reverse_proxy "+s.addr+"\n"
	failed := "route {\n" + line + "error 418\n}\nhandle_errors {\n"
	const (
		second  = "once {\nscope none\nkey {http.request.uri.query.other}\n}\n"
		posts   = "lb_retries 2\nlb_retry_match {\nmethod POST\n}"
		robin   = "lb_policy round_robin\n" + posts
		failing = "lb_policy first\nfail_duration 1m\n"                          // a failure counts for the whole Caddy
		refusal = "serialize q_{host} {\nconcurrency 2\n}\nserialize q_{host}\n" // the second is stricter
		events  = "serialize events_ {\ntimeout 1500ms\nkeepalive 1s always\nerror_response text/plain full\n}\n"
		opens   = "serialize opens_ {\nwaiting_page {\nstatus 200\nopens 2126-11-30T10:00:00Z\n}\n}\n"
	)
	written := strings.Replace(refusal, "q_{host}\n", "q_{host} {\nerror_response text/plain full\n}\n", 1)
	php, twice := "root {$HOME}\n"+line+"php_fastcgi ", s.fcgi+" "+elsewhere(s.fcgi)+" {\nread_timeout 50ms\n"+posts+"\n}"
	type outcome struct {
		lines, query string
		kept         bool   // the first request has no body, and gets a kept connection
		held         bool   // another request is inside meanwhile
		page         bool   // a browser asks for a page
		status       int    // of the first answer
		then         string // what a repetition gets
		effects      int    // in the end
	}
	outcomes := map[string]outcome{
		"201 with fields":                         {query: "status=201&Location=/orders/1%FC&Etag=%22a%22&X-Order=7&Set-Cookie=session=1", status: 201, then: repeated, effects: 1},
		"503 with Retry-After":                    {query: "status=503&Retry-After=1", status: 503, then: runs, effects: 2},
		"a refusal by another once":               {query: "status=409&Orderly-Once=running&Retry-After=5", status: 409, then: runs, effects: 2},
		"free_errors":                             {lines: free + proxy, query: "status=500", status: 500, then: runs, effects: 2},
		"free_errors, and a 404":                  {lines: free + proxy, query: "status=404", status: 404, then: repeated, effects: 1},
		"499, as if the client left":              {query: "status=499", status: 499, then: "unknown", effects: 1},
		"interim answers":                         {query: "do=hints", status: 200, then: repeated, effects: 1},
		"interim answers by HTTP/2":               {lines: line + "reverse_proxy h2c://" + s.addr, query: "do=hints&status=429", status: 429, then: runs, effects: 2},
		"as large as max_response":                {query: "size=1000", status: 200, then: repeated, effects: 1},
		"larger":                                  {query: "size=1001", status: 200, then: "not_kept", effects: 1},
		"larger, not announced":                   {query: "size=5000", status: 200, then: "not_kept", effects: 1},
		"a stream":                                {query: "Content-Type=text/event-stream", status: 200, then: "not_kept", effects: 1},
		"broken before the answer":                {query: "do=break", status: 502, then: "unknown", effects: 1},
		"broken in the answer":                    {query: "do=half", status: 200, then: "unknown", effects: 1},
		"less than announced":                     {lines: line + "route {\nheader Content-Length 100\nrespond x\n}", status: 200, then: "unknown"},
		"a proxy that waits no longer":            {lines: line + to(s.addr, "transport http {\nresponse_header_timeout 50ms\n}"), query: "do=wait", status: 504, then: "unknown", effects: 1},
		"a kept connection, broken":               {query: "do=break", kept: true, status: 504, then: "unknown", effects: 1},
		"a panic":                                 {lines: line + other(dead, 0), status: 0, then: "unknown"},
		"another proxy":                           {lines: line + other(s.addr, 502), query: "status=502", status: 502, then: repeated, effects: 1},
		"another proxy, broken":                   {lines: line + other(s.addr, 502), query: "do=break", status: 502, then: "unknown", effects: 1},
		"another proxy, broken, 408":              {lines: line + other(s.addr, 408), query: "do=break", status: 408, then: "unknown", effects: 1},
		"another proxy, broken, 500":              {lines: free + other(s.addr, 500), query: "do=break", status: 500, then: "unknown", effects: 1},
		"another proxy, a part of a head":         {lines: free + other(s.addr, 502), query: "do=part", status: 502, then: repeated, effects: 1},
		"another proxy, then an error":            {lines: line + "route {\nintercept {\nhandle_response {\nerror 403\n}\n}\n" + other(s.addr, 502) + "}", status: 403, then: "unknown", effects: 1},
		"another proxy, then another status":      {lines: line + "route {\nintercept {\nreplace_status 429\n}\n" + other(s.addr, 502) + "}", query: "status=500", status: 429, then: repeated, effects: 1},
		"no TLS":                                  {lines: line + "reverse_proxy https://" + s.addr, status: 502, then: runs},
		"no TLS, by a name":                       {lines: line + to("https://"+s.addr, "transport http {\ntls_server_name {http.request.host}\n}"), status: 502, then: runs},
		"an error":                                {lines: line + "error 500", status: 500, then: "unknown"},
		"an error of a route":                     {lines: failed + line + proxy + "}", status: 200, then: "unknown", effects: 1},
		"an error that forbids":                   {lines: line + "error 403", status: 403, then: runs},
		"no connection":                           {lines: line + "reverse_proxy " + dead, status: 502, then: runs},
		"no connection, written":                  {lines: line + to(dead+" "+dead, "lb_retries 2"), status: 502, then: runs},
		"no upstream":                             {lines: line + to("", "dynamic srv nowhere.invalid"), status: 503, then: runs},
		"the second upstream":                     {lines: line + to(dead+" "+s.addr, failing+"lb_retries 2"), query: "status=201", status: 201, then: repeated, effects: 1},
		"sent, then no connection":                {lines: line + to(elsewhere(s.addr+" "+dead), failing+posts), query: "do=break", status: 504, then: "unknown", effects: 1},
		"sent, then another upstream":             {lines: line + to(s.addr+" "+elsewhere(s.addr), robin), query: "do=break", status: 504, then: "unknown", effects: 1},
		"a part of a head, then another upstream": {lines: line + to(s.addr+" "+elsewhere(s.addr), robin), query: "do=part", status: 504, then: "unknown", effects: 1},
		"500, then 429 of another upstream":       {lines: line + to(s.addr, "@failed status 500\nhandle_response @failed {\n"+proxy+"}"), query: "status=500&then=429", kept: true, status: 429, then: repeated, effects: 2},
		"201, then 403 of another upstream":       {lines: line + to(s.addr, "@done status 201\nhandle_response @done {\n"+proxy+"}"), query: "status=201&then=403", kept: true, status: 403, then: repeated, effects: 2},
		"a freeing status in place of 500":        {lines: line + to(s.addr, "handle_response {\nheader Retry-After 1\nrespond 503\n}"), query: "status=500", status: 503, then: repeated, effects: 1},
		"encode in front":                         {lines: "encode {\nminimum_length 1\n}\n" + line + proxy, query: "status=201&Content-Type=text/html", status: 201, then: repeated, effects: 1},
		"a refusal":                               {lines: "route {\n" + line + refusal + "}", status: 503, then: runs},
		"a written refusal":                       {lines: "route {\n" + line + written + "}", status: 503, then: runs},
		// Bug: a refusal by a queue that came after keepalive's comments did not free the key.
		"a refusal in events": {lines: line + events + proxy, held: true, status: 200, then: runs},
		// Bug: a waiting page with a status other than 503 was taken for the answer, and repeated.
		"a waiting page":                              {lines: "once {\nscope none\nmethods GET\n}\n" + opens, page: true, status: 200, then: runs},
		"an error route after the upstream":           {lines: line + proxy + "handle_errors {\n" + line + proxy + "}", query: "do=break", status: 409, then: "unknown", effects: 1},
		"an error route after its answer":             {lines: line + to(s.addr, "handle_response {\nerror 500\n}") + "handle_errors {\n" + line + proxy + "}", status: 409, then: "unknown", effects: 1},
		"an error route after PHP":                    {lines: php + s.fcgi + " {\nread_timeout 50ms\n}\nhandle_errors {\n" + line + proxy + "}", query: "do=wait", status: 409, then: "unknown", effects: 1},
		"an error page that knows":                    {lines: line + proxy + "handle_errors {\n@doubt vars {http.once.outcome} unknown\nrespond @doubt sorry 410\n}", query: "do=break", status: 410, then: "unknown", effects: 1},
		"an error page of a proxy":                    {lines: line + proxy + "handle_errors {\n" + to(s.addr, "method GET\nrewrite /?status=200") + "}", query: "do=break", status: 200, then: "unknown", effects: 2},
		"a kept connection, broken in an error route": {lines: failed + line + proxy + "}", query: "do=break", kept: true, status: 418, then: "unknown", effects: 1},
		"once in the error route, a refusal":          {lines: line + "reverse_proxy " + dead + "\nhandle_errors {\n" + line + refusal + "}", status: 502, then: runs},
		"once in the error route, a page":             {lines: line + "reverse_proxy " + dead + "\nhandle_errors {\n" + line + "respond sorry 502\n}", status: 502, then: repeated},
		"a refusal in an error route":                 {lines: failed + line + refusal + "}", status: 418, then: "unknown"},
		"an error route after a refusal":              {lines: "route {\n" + line + refusal + "}\nhandle_errors {\n" + line + proxy + "}", query: "status=201", status: 201, then: repeated, effects: 1},
		"broken after a refusal":                      {lines: "route {\n" + refusal + "}\nhandle_errors {\n" + line + proxy + "}", query: "do=break", status: 503, then: "unknown", effects: 1},
		"no scope after a refusal":                    {lines: "route {\n" + refusal + "}\nhandle_errors {\nonce {\nscope {http.request.uri.query.none}\n}\n" + proxy + "}", status: 400, then: runs},
		"503 after a refusal":                         {lines: "route {\n" + refusal + "}\nhandle_errors {\n" + line + proxy + "}", query: "status=503", status: 503, then: repeated, effects: 1},
		"a refusal after the upstream":                {lines: line + to(s.addr, "handle_response {\n"+refusal+"}"), status: 503, then: "unknown", effects: 1},
		"a written refusal after it":                  {lines: line + to(s.addr, "handle_response {\n"+written+"}"), status: 503, then: "unknown", effects: 1},
		"PHP":                                         {lines: php + s.fcgi, query: "status=201", status: 201, then: repeated, effects: 1},
		"PHP, no connection":                          {lines: php + dead, status: 502, then: runs},
		"PHP, a refusal after its answer":             {lines: php + s.fcgi + " {\nhandle_response {\n" + refusal + "}\n}", status: 503, then: "unknown", effects: 1},
		"PHP, no name":                                {lines: php + "nowhere.invalid:1", status: 502, then: runs},
		"PHP, tried again":                            {lines: php + twice, query: "do=wait", status: 504, then: "unknown", effects: 1},
		"PHP after authentication, tried again":       {lines: "root {$HOME}\n" + line + "route {\nforward_auth " + s.addr + " {\nuri /auth?\n}\nphp_fastcgi " + twice + "\n}", query: "do=wait", status: 504, then: "unknown", effects: 2},
		"again after the answer":                      {lines: "intercept {\n@failed status 5xx\nhandle_response @failed {\n" + line + proxy + "}\n}\n" + line + proxy, query: "status=500", status: 500, then: repeated, effects: 1},
		"an upgrade":                                  {lines: "request_header Connection Upgrade\nrequest_header Upgrade chat\n" + line + proxy, query: "do=upgrade", status: 101, then: "not_kept", effects: 1},
		"a second line":                               {lines: line + "route {\n" + line + proxy + "}", status: 200, then: repeated, effects: 1},
		"a second key, missing":                       {lines: line + "route {\n" + strings.Replace(second, "}\n}", "}\nrequired\n}", 1) + proxy + "}", status: 400, then: runs},
		"a second key, after the answer":              {lines: free + to(s.addr, "handle_response {\n"+second+"respond 500\n}"), query: "status=204&other=a", status: 500, then: repeated, effects: 1},
		"a second key, after authentication":          {lines: line + "route {\nforward_auth " + s.addr + " {\nuri /auth?size=3000\n}\n" + second + proxy + "}", query: "other=b", status: 200, then: repeated, effects: 2},
		"a rewrite":                                   {lines: "route {\n" + line + "rewrite /b?status=201\n" + line + proxy + "}", status: 201, then: repeated, effects: 1},
		"an answer of Caddy":                          {lines: line + "respond \"{http.once.outcome}\" 202", status: 202, then: repeated},
		"nothing":                                     {lines: line, status: 200, then: repeated},
		"serialize":                                   {lines: line + "serialize {\npath {$HOME}/other\n}\n" + proxy, query: "status=201", status: 201, then: repeated, effects: 1},
		"serialize around":                            {lines: "route {\nserialize\n" + line + proxy + "}", query: "status=201", status: 201, then: repeated, effects: 1},
		"authentication behind":                       {lines: line + "route {\nforward_auth " + s.addr + " {\nuri /auth?key=auth\n}\nserialize\n" + proxy + "}", query: "status=201", status: 201, then: repeated, effects: 2},
	}
	for _, status := range []int{200, 204, 303, 304, 404, 500, 502, 503} {
		outcomes[fmt.Sprint(status)] = outcome{query: fmt.Sprint("status=", status), status: status, then: repeated, effects: 1}
	}
	for _, status := range []int{401, 403, 407, 408, 421, 425, 429} {
		outcomes[fmt.Sprint(status)] = outcome{query: fmt.Sprint("status=", status), status: status, then: runs, effects: 2}
	}
	hostOf := strings.NewReplacer(" ", "-", ",", "", "/", "").Replace
	sites := make(map[string]string)
	for name, c := range outcomes {
		sites[hostOf(name)] = cmp.Or(c.lines, line+proxy)
	}
	url := newSites(t, sites).url
	for name, c := range outcomes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, method, accept, body := hostOf(name), http.MethodPost, "*/*", "body"
			key := host
			send := func() testcaddy.Answer {
				return <-testcaddy.Send(t, method, url+"/?"+c.query, body, "Host", host, "Idempotency-Key", key, "Accept-Encoding", "gzip", "Accept", accept)
			}
			switch {
			case c.kept:
				body = ""
				<-testcaddy.Send(t, http.MethodGet, url, "", "Host", host)
			case c.held:
				testcaddy.Send(t, method, url+"/?do=wait", "", "Host", host, "Idempotency-Key", "holder")
				wait.Until(t, "the holder is inside", func() bool { return s.count("holder") == 1 })
			case c.page:
				method, accept, body = http.MethodGet, "text/html", ""
			}
			first := send()
			if first.StatusCode != c.status {
				t.Fatalf("the first answer: %v", first)
			}
			again := send()
			reason, replayed := again.Header.Get("Orderly-Once"), again.Header.Get("Idempotent-Replayed") == "true"
			switch c.then {
			case repeated:
				if !replayed || again.StatusCode != first.StatusCode || again.Text != first.Text {
					t.Errorf("a repetition: %v, after %v", again, first)
				}
				for _, name := range []string{"Location", "Content-Type", "Content-Encoding", "Etag", "Link", "X-Order"} {
					if again.Header.Get(name) != first.Header.Get(name) {
						t.Errorf("%s: %q, after %q", name, again.Header.Get(name), first.Header.Get(name))
					}
				}
				if again.Header.Get("Set-Cookie")+again.Header.Get("Retry-After") != "" {
					t.Error("a cookie or Retry-After was repeated")
				}
			case runs:
				retry := reason == "" || reason == "running" || again.Header.Get("Retry-After") == ""
				if replayed || !retry || reason != first.Header.Get("Orderly-Once") || again.StatusCode != first.StatusCode {
					t.Errorf("the second request: %v", again)
				}
			default:
				if again.StatusCode != http.StatusConflict || reason != c.then || again.Header.Get("X-Should-Retry") != "false" ||
					again.Header.Get("Content-Type") != "application/problem+json" || again.Header.Get("Retry-After") != "" {
					t.Errorf("a repetition: %v", again)
				}
			}
			wait.Until(t, "the upstream has had its requests", func() bool { return s.count(key) >= c.effects })
			if n := s.count(key); n != c.effects {
				t.Errorf("%d effects, want %d", n, c.effects)
			}
		})
	}
}

// Repetitions wait in line for the first, eight at most, and no longer than timeout. A client that
// hangs up does not end the first request, and a reload neither. Another key does not wait.
func TestWaiting(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := newSite(t, "once {\nscope none\ntimeout 1m\n}\nreverse_proxy "+upstream.Addr)
	ctx, hangUp := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/a?gate", http.NoBody)
	r.Header.Set("Idempotency-Key", "a")
	answers := make(chan testcaddy.Answer, 12)
	go func() { answers <- testcaddy.Do(http.DefaultClient, r) }()
	upstream.Next("a")
	hangUp()
	<-answers
	if err := c.Load("text/caddyfile", strings.ReplaceAll(c.settings.Caddyfile, "scope none", "scope none\nkeep 3d")); err != nil {
		t.Fatal(err)
	}
	testcaddy.AwaitOneListener(t, strings.TrimPrefix(c.url, "http://"))
	for range 12 {
		answer := testcaddy.Send(t, http.MethodPost, c.url+"/a?gate", "", "Idempotency-Key", "a")
		go func() { answers <- <-answer }()
	}
	for range 4 {
		a := testcaddy.Await(t, answers).Want(t, 409)
		if a.Header.Get("Orderly-Once") != "running" || a.Header.Get("Retry-After") == "" || a.Header.Get("X-Should-Retry") != "" {
			t.Errorf("refused with %v", a)
		}
	}
	testcaddy.Await(t, testcaddy.Send(t, http.MethodPost, c.url+"/b", "", "Idempotency-Key", "b")).Want(t, 200)
	upstream.Open("a")
	for range 8 {
		if a := testcaddy.Await(t, answers); a.Text != "served a" || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a repetition: %v", a)
		}
	}
	if order := upstream.Order(); len(order) != 2 {
		t.Errorf("the upstream saw %v", order)
	}
	metrics := c.Ask("/metrics")
	for _, line := range []string{`{outcome="first"} 2`, `{outcome="repeated"} 8`, `{outcome="running"} 4`, `{outcome="unknown"} 0`} {
		if !strings.Contains(metrics, "caddy_once_requests_total"+line) {
			t.Errorf("no metric %s", line)
		}
	}
}

// Keys with and without quotes are the same; those of other hosts, scopes, methods, addresses and
// bodies are not. Bug: two lines with the key k were the key k,k.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newSite(t, "once {\nkey {http.request.header.Idempotency-Key}{http.request.uri.query.key}\nscope {http.request.header.X-User}\nrequired\n}\nreverse_proxy "+s.addr)
	for _, r := range []struct {
		keys                   []string // which all get the same; a line feed is between two fields
		user, host, path, body string   // a path may have another method than POST before it
		status                 int
		says                   string // the reason, or the body of the answer
	}{
		{[]string{""}, "anna", "", "/", "a", 400, "no_key"},
		{[]string{"k"}, "", "", "/", "a", 400, "no_scope"},
		{[]string{"k", `"k"`, ` "k"; v=1 `, `"k";v=:YQ==:`}, "anna", "", "/", "a", 200, "1"},
		{[]string{`"k";v=1;*a-b_.c="d;\"";e;f=?1`}, "anna", "A.example", "/", "a", 200, "1"},
		{[]string{"k\nk", `"k";;v`, `"k";V`, `"k";v=`, `"k\l"`, `"k`, `"k", "l"`, `""`, "a b", "ü"}, "anna", "", "/", "a", 400, "bad_key"},
		{[]string{""}, "anna", "", "/?key=k&key=k", "a", 400, "bad_key"},
		{[]string{"k"}, "anna", "a.EXAMPLE.:80", "/", "a", 200, "1"},
		{[]string{"k"}, "berta", "", "/", "a", 200, "2"},
		{[]string{"k"}, "anna", "", "/", "b", 422, "mismatch"},
		{[]string{"k"}, "anna", "", "/", "", 422, "mismatch"},
		{[]string{"k"}, "anna", "", "/b", "a", 422, "mismatch"},
		{[]string{"k"}, "anna", "", "/?b", "a", 422, "mismatch"},
		{[]string{"k"}, "anna", "", "PATCH /", "a", 422, "mismatch"},
		{[]string{strings.Repeat("k", 256)}, "anna", "", "/", "a", 400, "bad_key"},
		{[]string{strings.Repeat("l", 255), `"q\"\\"`, "k"}, "anna", "", "/", "a", 200, "1"},
		{[]string{`q"\`}, "anna", "", "/", "b", 422, "mismatch"},
		{[]string{"k"}, "anna", "[::1]:80", "/", "a", 200, "3"},
		{[]string{"k"}, "anna", "[::1]", "/", "a", 200, "3"},
	} {
		method, path, found := strings.Cut(r.path, " ")
		if !found {
			method, path = http.MethodPost, r.path
		}
		for _, key := range r.keys {
			req, _ := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(r.body))
			testcaddy.SetHeader(req, []string{"X-User", r.user, "Host", r.host})
			req.Header["Idempotency-Key"] = strings.Split(key, "\n")
			a := testcaddy.Do(http.DefaultClient, req)
			if got := cmp.Or(a.Header.Get("Orderly-Once"), a.Text); a.StatusCode != r.status || got != r.says {
				t.Errorf("%q of %+v: %v", key, r, a)
			}
		}
	}
}
