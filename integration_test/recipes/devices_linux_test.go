package recipes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Without the queue, some writers find the database locked.
func TestSQLite(t *testing.T) {
	root := shortDir(t)
	testcaddy.WriteFile(t, filepath.Join(root, "index.php"), `<?php
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
`)
	php := testcaddy.Need(t, "php", "apt-get install php-cli php-sqlite3")
	database := filepath.Join(root, "shop.db")
	prepare := fmt.Sprintf(`$db = new SQLite3(%[1]q);
$db->exec("PRAGMA journal_mode=WAL; CREATE TABLE stock (n); INSERT INTO stock VALUES (0)");
chmod(%[1]q, 0666);`, database)
	if out, err := exec.CommandContext(t.Context(), php, "-r", prepare).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k := cook(t, "SQLite behind a web application", "reverse_proxy localhost:9000", "root "+root+"\n\tphp_fastcgi unix/"+startPHPFPM(t))
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

// A client that goes away ends the generation, and the next one gets its tokens
// one by one.
func TestOneGPU(t *testing.T) {
	var inside, most atomic.Int32
	cancelled, next := make(chan struct{}, 1), make(chan struct{})
	addr := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/tags" {
			_, _ = io.WriteString(w, "models")
			return
		}
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inside.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-ndjson")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "{\"response\":\"token %d\"}\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				cancelled <- struct{}{}
				return
			}
		}
	}))
	k := cook(t, "One GPU behind Ollama or llama.cpp", "localhost:11434", addr)
	generate := func() (*bufio.Reader, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", k.url+"api/generate", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return bufio.NewReader(resp.Body), cancel
	}
	token := func(from *bufio.Reader, i int) {
		t.Helper()
		if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprint("token ", i)) {
			t.Fatalf("read %q, %v; expected token %d", line, err, i)
		}
	}
	first, hangUp := generate()
	token(first, 0)
	want(t, k.get(t, "api/tags"), 200, "models") // needs no GPU
	type generation struct {
		tokens *bufio.Reader
		cancel context.CancelFunc
	}
	second := make(chan generation)
	go func() {
		tokens, cancel := generate()
		second <- generation{tokens, cancel}
	}()
	k.awaitTickets(t, "gpu_", 2)
	if most.Load() != 1 {
		t.Errorf("%d prompts are at work at once", most.Load())
	}
	hangUp()
	select {
	case <-cancelled:
	case <-time.After(wait.Patience):
		t.Fatal("the upstream still generates for a client that has gone")
	}
	g := <-second
	defer g.cancel()
	for i := range 3 {
		token(g.tokens, i)
		next <- struct{}{}
	}
}

// The device is a terminal in raw mode. It answers each byte by itself, so two
// commands at once come out mixed.
func TestSerialDevice(t *testing.T) {
	device := openTerminal(t)
	addr := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line, err := os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer line.Close()
		command := "weigh" + r.URL.Path + "\n"
		for i := range command {
			_, _ = line.WriteString(command[i : i+1])
			time.Sleep(time.Millisecond) // as slow as a line of 9,600 baud
		}
		answer, err := bufio.NewReader(line).ReadString('\n')
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	k := cook(t, "A serial device", "localhost:9000", addr)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			a := <-k.get(t, fmt.Sprint(i))
			if expected := fmt.Sprintf("weighed weigh/%d\n", i); a.Err != nil || a.Text != expected {
				t.Errorf("the scale answered %v %q; expected %q", a.Err, a.Text, expected)
			}
		})
	}
	all.Wait()
}

// openTerminal makes a terminal whose other end answers each line, and returns
// its path.
func openTerminal(t *testing.T) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprint("/dev/pts/", number)
	// Open once more, so that the terminal does not hang up between users.
	keep, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keep.Close() })
	mode, err := unix.IoctlGetTermios(int(keep.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(keep.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(master)
		for lines.Scan() {
			_, _ = fmt.Fprintf(master, "weighed %s\n", lines.Text())
		}
	}()
	return path
}

// A call's messages go in both directions while the next call waits. A call that is
// cancelled ends its turn.
func TestGRPC(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		messages := bufio.NewScanner(r.Body)
		for messages.Scan() {
			_, _ = fmt.Fprintf(w, "%s %s\n", r.URL.Query().Get("call"), messages.Text())
			_ = http.NewResponseController(w).Flush()
		}
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	upstream.Config.Protocols = protocols
	upstream.Start()
	t.Cleanup(upstream.Close)
	k := cook(t, "gRPC", "hold_timeout 1m", "hold_timeout 10m", "localhost:9000", strings.TrimPrefix(upstream.URL, "http://"),
		"example.com {", "{\n\tadmin {$ADMIN}\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n}\n\nexample.com {")
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	type call struct {
		messages *io.PipeWriter
		answers  *bufio.Scanner
		cancel   func() error
	}
	begin := func(name string) call {
		body, messages := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", k.url+"ledger.Ledger/Add?call="+name, body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("Content-Type", "application/grpc")
		go func() { _, _ = io.WriteString(messages, "hello\n") }()
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("call %s: %v", name, err)
			return call{messages, bufio.NewScanner(strings.NewReader("")), messages.Close}
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return call{messages, bufio.NewScanner(resp.Body), resp.Body.Close}
	}
	want := func(c call, answer string) {
		t.Helper()
		if !c.answers.Scan() || c.answers.Text() != answer {
			t.Fatalf("the answer is %q, %v; expected %q", c.answers.Text(), c.answers.Err(), answer)
		}
	}
	first := begin("first")
	want(first, "first hello")
	next := make(chan call, 1)
	go func() { next <- begin("second") }()
	k.awaitTickets(t, "ledger_", 2)
	_, _ = io.WriteString(first.messages, "again\n")
	want(first, "first again")
	_ = first.cancel()
	second := <-next
	want(second, "second hello")
	_ = second.messages.Close()
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
	for range 2 {
		if status := upgrade(t, site); status != http.StatusSwitchingProtocols {
			t.Fatalf("the upgrade was answered with %d", status)
		}
	}
	want(t, k.get(t, "a"), 200, "page")
	want(t, k.get(t, "b"), 200, "page")
	if status := upgrade(t, site); status != http.StatusServiceUnavailable {
		t.Errorf("one WebSocket too many was answered with %d", status)
	}
}

// upgrade opens a WebSocket until the end of the test, and makes sure that it
// carries data.
func upgrade(t *testing.T, site string) (status int) {
	t.Helper()
	conn, err := net.Dial("tcp", site)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", site)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return resp.StatusCode
	}
	_, _ = conn.Write([]byte("ping"))
	echo := make([]byte, 4)
	if _, err := io.ReadFull(reader, echo); err != nil || !bytes.Equal(echo, []byte("ping")) {
		t.Errorf("the WebSocket answered %q, %v", echo, err)
	}
	return resp.StatusCode
}
