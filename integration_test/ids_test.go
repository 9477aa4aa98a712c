//go:build unix

package integration_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// oneOfEach is a text with one ID of each kind.
var oneOfEach = regexp.MustCompile(`^[0-9a-v]{20} [A-Za-z0-9@-]{19} [0-9a-f]{18} [0-9A-Za-z]{8}$`)

// A request has the same IDs wherever they are used.
func TestIDsStayTheSame(t *testing.T) {
	t.Parallel()
	const idText = "{http.request.txid} {unique_id} {http.request.sharded_id} {http.request.call_number}"
	const idBody = `respond "` + idText + `"`
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Ids"))
	}))
	ways := map[string]string{
		"as-it-is":       idBody,
		"rewrite":        "rewrite /elsewhere?{query}\nroute /elsewhere {\n" + idBody + "\n}",
		"error-routes":   "error 418",
		"named-route":    "invoke named",
		"subroute":       "route {\nunique_ids {\nlayout modern\n}\nhandle {\n" + idBody + "\n}\n}",
		"behind-a-queue": "serialize {\npath {$DIR}\n}\n" + idBody,
		"upstream":       "reverse_proxy " + upstream + " {\nheader_up X-Ids \"" + idText + "\"\n}",
	}
	site := "unique_ids\nlog\nheader X-Request-Id {http.request.txid}\nheader X-Ids \"" + idText + "\"\nhandle_errors {\n" + idBody + "\n}\n"
	for name, way := range ways {
		site += "handle_path /" + name + "/* {\n" + way + "\n}\n"
	}
	c, seen := start(t, setup{more: "&(named) {\n" + idBody + "\n}", site: site}), make(map[string]bool)
	for name := range ways {
		for range 3 {
			r := c.get("/" + name + "/")
			ids := r.Header.Get("X-Ids")
			if r.Err != nil || r.Text != ids || seen[ids] || !oneOfEach.MatchString(ids) {
				t.Fatalf("%s is answered %v", name, r)
			}
			seen[ids] = true
			c.awaitAccess(r.Header.Get("X-Request-Id"))
		}
	}
}

// awaitAccess waits for the access log's entry of a request.
func (c *caddy) awaitAccess(txid string) entry {
	c.t.Helper()
	return c.awaitEntry("the access log has txid "+txid, func(e entry) bool {
		return strings.HasPrefix(e.Text("logger"), "http.log.access") && e.Text("txid") == txid
	})
}

// An error that passes the handler gets the txid as its ID, so the error log and the
// access log join.
func TestErrorLogJoinsAccessLog(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: "unique_ids\nlog\nheader X-Request-Id {http.request.txid}\nhandle /broken {\nerror broken 503\n}\n" +
		"handle /down {\nreverse_proxy 127.0.0.1:1\n}\nhandle {\n" + behindQueue("queue_length 1") + "\n}"})
	c.holder(t)
	c.waiter("waiter", 2)
	for path, status := range map[string]int{"/broken": 503, "/down": 502, "/refused": 503} {
		txid := c.get(path).Want(t, status).Header.Get("X-Request-Id")
		_, err := uniqueid.ParseTXID(txid)
		check(t, err)
		c.awaitAccess(txid)
		c.awaitEntry("the error log has err_id "+txid, func(e entry) bool {
			return strings.HasPrefix(e.Text("logger"), "http.log.error") && e.Text("err_id") == txid
		})
		if path == "/refused" {
			if line := c.wantRefusalLogged("queue_full", "serializer_"); line.Text("txid") != txid {
				t.Errorf("the log of the refusal has the txid %q, want %q", line.Text("txid"), txid)
			}
		}
	}
}

// Caddy's trusted_proxies say whose ID is adopted. Behind the PROXY protocol, the peer is the client that
// the proxy names.
func TestTrust(t *testing.T) {
	t.Parallel()
	const proxied = "listener_wrappers {\nproxy_protocol {\nallow 127.0.0.1/32\n}\n}\ntrusted_proxies static "
	for servers, kept := range map[string]bool{
		"": false, trustsUs: true, proxied + "127.0.0.1/32": false, proxied + "203.0.113.7/32": true, proxied + "0.0.0.0/0 ::/0": true,
	} {
		c := start(t, setup{servers: servers, site: "unique_ids {\n trust X-Request-Id\n}\nrespond {http.request.txid}|{header.X-Request-Id}"})
		head := "GET / HTTP/1.1\r\nHost: " + c.host() + "\r\nX-Request-Id: abc\r\n\r\n"
		if strings.HasPrefix(servers, "listener") {
			head = "PROXY TCP4 203.0.113.7 203.0.113.8 1234 80\r\n" + head
		}
		resp, err := http.ReadResponse(bufio.NewReader(c.dial(head)), nil)
		check(t, err)
		text, err := io.ReadAll(resp.Body)
		check(t, err)
		if got := string(text); kept != (got == "abc|abc") || !kept && len(got) != len("cbpvimguo4hkaps9lf6g|") {
			t.Errorf("%s: the ID and the field are %q", servers, got)
		}
	}
}

// callNumbers starts a server that answers with call numbers, whose runs are in a store.
func callNumbers(t *testing.T, store, more string) *caddy {
	t.Helper()
	return start(t, setup{global: "storage file_system " + store, site: "unique_ids\nrespond {http.request.call_number}" + more})
}

// storeRun stores the next run as documented.
func storeRun(t *testing.T, store, text string) (file string) {
	t.Helper()
	file = filepath.Join(store, "orderly", "call_numbers", "next_run")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	testcaddy.WriteFile(t, file, text)
	return file
}

// A site that has already used call numbers continues above them: the documented ways to
// store the next run.
func TestCallNumbersStartAtRun(t *testing.T) {
	t.Parallel()
	files, imported, dir := testcaddy.TempDir(t), testcaddy.TempDir(t), t.TempDir()
	storeRun(t, files, "8453\n")
	storeRun(t, dir, "8453\n")
	config, input := filepath.Join(dir, "caddy.json"), filepath.Join(dir, "runs.tar")
	testcaddy.WriteFile(t, config, `{"storage":{"module":"file_system","root":"`+imported+`"}}`)
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-cf", input, "orderly/call_numbers/next_run").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if _, errs, code := testcaddy.Output(t, "storage", "import", "--config", config, "--input", input); code != 0 {
		t.Fatalf("caddy storage import: exit code %d: %s", code, errs)
	}
	for _, store := range []string{files, imported} {
		number, err := uniqueid.ParseCallNumber(callNumbers(t, store, "").get("/").Want(t, http.StatusOK).Text)
		if err != nil || number.Run() != 8453 || number.Sequence() != 0 {
			t.Errorf("the first number is of run %d, sequence %d, %v; expected run 8453", number.Run(), number.Sequence(), err)
		}
	}
}

// If the storage fails, requests that ask for a call number get none, the log says why,
// and nothing else is affected. When the storage works again, so do call numbers.
func TestCallNumbersWithoutStorage(t *testing.T) {
	t.Parallel()
	store := testcaddy.TempDir(t)
	next := storeRun(t, store, "spilled coffee")
	c := callNumbers(t, store, "|{http.request.txid}")
	number, txid, _ := strings.Cut(c.get("/").Want(t, http.StatusOK).Text, "|")
	if _, err := uniqueid.ParseTXID(txid); err != nil || number != "" {
		t.Errorf("got %q and txid %q, want no call number, and a txid", number, txid)
	}
	c.awaitEntry("the log says why", func(e entry) bool {
		return strings.Contains(e.Text("msg"), "requests get no call number") && strings.Contains(e.Text("error"), next+": it is damaged")
	})
	check(t, os.Remove(next))
	wait.Until(t, "there are numbers again", func() bool { return !strings.HasPrefix(c.get("/").Text, "|") })
}
