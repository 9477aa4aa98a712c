//go:build unix

package recipes

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Without the queue, some writers find the database locked.
func TestSQLite(t *testing.T) {
	php := testcaddy.Need(t, "php", "apt-get install php-cli php-sqlite3")
	root, socket := phpAt(t, map[string]string{"index.php": `<?php
$db = new SQLite3(__DIR__ . "/shop.db");
$db->enableExceptions(true);
$post = $_SERVER["REQUEST_METHOD"] === "POST";
$db->busyTimeout($post ? 0 : 5000);
try {
    if ($post) {
        $db->exec("BEGIN IMMEDIATE");
        $db->exec("UPDATE stock SET n = n + 1");
        usleep(5000);
        $db->exec("COMMIT");
    }
    echo "stock ", $db->querySingle("SELECT n FROM stock");
} catch (Exception $e) {
    http_response_code(500);
    echo $e->getMessage();
}
`})
	prepare := fmt.Sprintf(`$db = new SQLite3(%[1]q);
$db->exec("PRAGMA journal_mode=WAL; CREATE TABLE stock (n); INSERT INTO stock VALUES (0)");
chmod(%[1]q, 0666);`, filepath.Join(root, "shop.db"))
	if out, err := exec.CommandContext(t.Context(), php, "-r", prepare).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k := cook(t, "SQLite behind a web application", "reverse_proxy localhost:9000", "root "+root+"\n\tphp_fastcgi unix/"+socket)
	const clients, each = 6, 5
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				if a := <-testcaddy.Send(t, "POST", k.url+"order", ""); a.Err != nil || a.StatusCode != 200 {
					t.Errorf("answered %v %q", a.Err, a.Text)
				}
			}
		})
	}
	all.Wait()
	want(t, k.get(t, ""), 200, fmt.Sprint("stock ", clients*each))
}

// dialogue is a request whose body and answer take turns.
type dialogue struct {
	*http.Response
	messages *io.PipeWriter
	answer   *bufio.Reader
}

// begin sends the head of a request and a first message, and delivers the dialogue when the
// answer begins.
func begin(t *testing.T, client *http.Client, url, contentType, message string) <-chan dialogue {
	body, messages := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("TE", "trailers")
	begun := make(chan dialogue, 1)
	go func() {
		_, _ = io.WriteString(messages, message)
		if contentType == "application/json" { // whose body ends before the answer begins
			_ = messages.Close()
		}
	}()
	go func() {
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			resp = &http.Response{Body: http.NoBody}
		}
		begun <- dialogue{resp, messages, bufio.NewReader(resp.Body)}
	}()
	return begun
}

// A client that goes away ends the generation, and the next one gets its tokens
// one by one.
func TestOneGPU(t *testing.T) {
	addr := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, r.URL.Path+"\n")
		_ = http.NewResponseController(w).Flush()
		if r.Method == "POST" {
			<-r.Context().Done()
		}
	}))
	k := cook(t, "One GPU behind Ollama or llama.cpp", "localhost:11434", addr)
	token := func(from dialogue) {
		t.Helper()
		if line, err := from.answer.ReadString('\n'); line != "/api/generate\n" {
			t.Fatalf("read %q, %v; expected a token", line, err)
		}
	}
	first := <-begin(t, http.DefaultClient, k.url+"api/generate", "application/json", "{}")
	token(first)
	want(t, k.get(t, "api/tags"), 200, "/api/tags") // needs no GPU
	second := begin(t, http.DefaultClient, k.url+"api/generate", "application/json", "{}")
	k.awaitTickets(t, "gpu_", 2)
	if len(second) > 0 {
		t.Error("two prompts are at work at once")
	}
	_ = first.Body.Close()
	next := <-second
	token(next)
	_ = next.Body.Close()
}

// A call's messages, small and large, go in both directions while the next call waits, and
// the trailers come last. A call that is cancelled ends its turn.
func TestGRPC(t *testing.T) {
	// gRPC is HTTP/2 without TLS, messages with a length before them, and trailers.
	read := func(from io.Reader) ([]byte, error) {
		head := make([]byte, 5)
		if _, err := io.ReadFull(from, head); err != nil {
			return nil, err
		}
		message := slices.Concat(head, make([]byte, binary.BigEndian.Uint32(head[1:])))
		_, err := io.ReadFull(from, message[5:])
		return message, err
	}
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		for message, err := read(r.Body); err == nil; message, err = read(r.Body) {
			_, _ = w.Write(message)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	upstream.Config.Protocols = protocols
	upstream.Start()
	t.Cleanup(upstream.Close)
	k := cook(t, "gRPC", "hold_timeout 1m", "hold_timeout 10m", "localhost:9000", upstream.Listener.Addr().String(),
		"example.com {", "{\n\tadmin {$ADMIN}\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n}\n\nexample.com {")
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	message := func(length int) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(length))) + strings.Repeat("x", length)
	}
	call := func() <-chan dialogue {
		return begin(t, client, k.url+"ledger.Ledger/Add", "application/grpc", message(5))
	}
	wantEcho := func(from dialogue, length int) {
		t.Helper()
		if got, err := read(from.answer); err != nil || string(got) != message(length) {
			t.Fatalf("got %d bytes, %v, of a message of %d", len(got), err, length)
		}
	}
	first := <-call()
	wantEcho(first, 5)
	next := call()
	k.awaitTickets(t, "ledger_", 2)
	for _, length := range []int{0, 3000, 100_000, 1_000_000, 1} {
		if _, err := io.WriteString(first.messages, message(length)); err != nil {
			t.Fatal(err)
		}
		wantEcho(first, length)
	}
	if len(next) > 0 {
		t.Error("two calls are inside")
	}
	_ = first.Body.Close()
	second := <-next
	wantEcho(second, 5)
	_ = second.messages.Close()
	if rest, err := io.ReadAll(second.answer); len(rest) > 0 || err != nil || second.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("it ends with %q, %v, %v", rest, err, second.Trailer)
	}
}

// An open WebSocket keeps nobody else waiting, however its header is written.
func TestWebSockets(t *testing.T) {
	addr := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			_, _ = io.WriteString(w, "page")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	}))
	k := cook(t, "WebSockets", "localhost:9000", addr, "concurrency 100", "concurrency 2", "timeout 1s", "timeout 2s")
	site := strings.Trim(strings.TrimPrefix(k.url, "http:"), "/")
	upgrade := func(want int) {
		t.Helper()
		conn, err := net.Dial("tcp", site)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", site)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want {
			t.Errorf("the upgrade was answered %v, %v; expected %d", resp, err, want)
		}
	}
	upgrade(http.StatusSwitchingProtocols)
	upgrade(http.StatusSwitchingProtocols)
	want(t, k.get(t, "a"), 200, "page")
	want(t, k.get(t, "b"), 200, "page")
	upgrade(http.StatusServiceUnavailable) // one too many
}
