//go:build unix

package recipes

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

// Writers are alone. They need their busy timeout all the same. Bug: without it, and beside
// readers, 53 of 800 writes found the database locked while a connection opened or closed it.
func TestSQLite(t *testing.T) {
	php := needPHP(t, "sqlite3")
	root, socket := testcaddy.ServePHP(t, map[string]string{"index.php": `<?php
$db = new SQLite3(__DIR__ . "/shop.db");
$db->enableExceptions(true);
$db->busyTimeout(5000);
$alone = fopen(__DIR__ . "/writer", "c");
try {
    if ($_SERVER["REQUEST_METHOD"] === "POST") {
        if (!flock($alone, LOCK_EX | LOCK_NB)) throw new Exception("two writers at once");
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
	all.Go(func() {
		for range clients * each {
			want(t, k.get(t, ""), 200, "stock ")
		}
	})
	all.Wait()
	want(t, k.get(t, ""), 200, fmt.Sprint("stock ", clients*each))
}

// A client that goes away ends the generation, and the next one begins. What needs no GPU
// does not wait.
func TestOneGPU(t *testing.T) {
	k := cook(t, "One GPU behind Ollama or llama.cpp")
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "POST", k.url+"api/generate", strings.NewReader("{}"))
	check(t, err)
	go testcaddy.Do(http.DefaultClient, request)
	first := k.Next("api/generate")
	second := testcaddy.Send(t, "POST", k.url+"api/generate", "{}")
	k.awaitTickets(t, "gpu_", 2)
	tags := k.get(t, "api/tags")
	k.Next("api/tags").Leave()
	want(t, tags, 200, "")
	k.Nobody()
	hangUp()
	<-first.Gone
	k.Next("api/generate").Leave()
	want(t, second, 200, "served")
}

// Each server has one prompt at a time, and the next one goes to the server that is free. Bug: a
// server that was down failed one prompt after another while the other one worked.
func TestTwoGPUs(t *testing.T) {
	one, two, down := testcaddy.NewGatedUpstream(t), testcaddy.NewGatedUpstream(t), testprocess.FreeAddr(t)
	k := cook(t, "Two GPUs", "10.0.0.1:11434", one.Addr, "10.0.0.2:11434", down)
	var answers []<-chan testcaddy.Answer
	for i := range 4 {
		answers = append(answers, testcaddy.Send(t, "POST", fmt.Sprintf("%sapi/%d", k.url, i), "{}"))
		k.awaitTickets(t, "gpu_", i+1)
	}
	first := one.Next("api/0")
	tags := k.get(t, "api/tags")
	one.Next("api/tags").Leave()
	want(t, tags, 200, "")
	one.Nobody()
	first.Leave()
	third := one.Next("api/2")
	back, err := net.Listen("tcp", down)
	check(t, err)
	defer back.Close()
	go http.Serve(back, two)
	two.Next("api/1").Leave()
	two.Next("api/3").Leave()
	third.Leave()
	for i, answer := range answers {
		want(t, answer, 200, fmt.Sprint("served api/", i))
	}
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
	type call struct {
		*http.Response
		messages *io.PipeWriter
	}
	begin := func() <-chan call {
		body, messages := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", k.url+"ledger.Ledger/Add", body)
		check(t, err)
		r.Header.Set("TE", "trailers")
		begun := make(chan call, 1)
		go func() { _, _ = io.WriteString(messages, message(5)) }()
		go func() {
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				resp = &http.Response{Body: http.NoBody}
			}
			begun <- call{resp, messages}
		}()
		return begun
	}
	wantEcho := func(from call, length int) {
		t.Helper()
		if got, err := read(from.Body); err != nil || string(got) != message(length) {
			t.Fatalf("got %d bytes, %v, of a message of %d", len(got), err, length)
		}
	}
	first := <-begin()
	wantEcho(first, 5)
	next := begin()
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
	if rest, err := io.ReadAll(second.Body); len(rest) > 0 || err != nil || second.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("it ends with %q, %v, %v", rest, err, second.Trailer)
	}
}

// An open WebSocket keeps nobody else waiting. TestWebSocket shows that it keeps its turn.
func TestWebSockets(t *testing.T) {
	k := cook(t, "WebSockets", "concurrency 100", "concurrency 2", "timeout 1s", "timeout 2s")
	var sockets []<-chan testcaddy.Answer
	for i := range 2 {
		sockets = append(sockets, k.get(t, "socket"))
		k.awaitTickets(t, "socket_", i+1)
		k.Next("socket")
	}
	page := k.get(t, "a")
	k.Next("a").Leave()
	want(t, page, 200, "served a")
	want(t, k.get(t, "socket/more"), 503, "") // one too many
	k.OpenAll()
	for _, socket := range sockets {
		want(t, socket, 200, "")
	}
}

// MediaWiki runs behind the recipe, as Debian has it, and 20 clients edit at the same time. If each
// edit is there once, none was lost and none ran twice. Bug: the recipe did not say that PHP must not
// work after its answer. MediaWiki then wrote to its database beside the next edit.
func TestSQLiteMediaWiki(t *testing.T) {
	const source = "/usr/share/mediawiki"
	if info, err := os.Stat(source + "/index.php"); err != nil || !info.Mode().IsRegular() {
		t.Skip("MediaWiki is missing; install it with: apt-get install mediawiki")
	}
	php := needPHP(t, "sqlite3", "mbstring", "xml", "intl")
	dir, socket := testcaddy.ServePHP(t, nil, phpLine(t))
	for _, name := range []string{"data", "cache"} {
		check(t, os.Mkdir(filepath.Join(dir, name), 0o777))
	}
	install := exec.CommandContext(t.Context(), php, filepath.Join(source, "maintenance/install.php"), "--confpath", dir, "--dbtype", "sqlite",
		"--dbpath", filepath.Join(dir, "data"), "--server", "http://localhost", "--scriptpath", "", "--pass", "long-enough-for-it", "Wiki", "Admin")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("installing MediaWiki: %v\n%s", err, out)
	}
	settings := filepath.Join(dir, "LocalSettings.php")
	testcaddy.WriteFile(t, settings, readFile(t, settings)+strings.ReplaceAll(`
$wgCacheDirectory = 'DIR/cache';
$wgGroupPermissions['*']['noratelimit'] = true;
if (($_SERVER['REQUEST_METHOD'] ?? '') == 'POST') {
	$GLOBALS['work'] = fopen('DIR/work', 'c'); // until PHP is done with the request
	if (!flock($GLOBALS['work'], LOCK_EX | LOCK_NB)) {
		http_response_code(409);
		exit('not alone');
	}
}
`, "DIR", dir))
	check(t, exec.CommandContext(t.Context(), "chmod", "-R", "a+rwX", dir).Run())
	k := cook(t, "SQLite behind a web application", "timeout 20s", "timeout 10m", "reverse_proxy localhost:9000",
		fmt.Sprintf("root %s\n\tphp_fastcgi unix/%s {\n\t\tenv MW_CONFIG_FILE %s\n\t}", source, socket, settings))

	texts := make([]string, 20)
	var clients sync.WaitGroup
	for i := range texts {
		texts[i] = fmt.Sprintf("edit-%d-end", i)
		clients.Go(func() {
			form := url.Values{"action": {"edit"}, "format": {"json"}, "title": {"Shared"}, "appendtext": {"\n" + texts[i]}, "token": {`+\`}}
			a := <-testcaddy.Send(t, "POST", k.url+"api.php", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
			if !strings.Contains(a.Text, `"result":"Success"`) {
				t.Errorf("the edit %s is answered %v", texts[i], a)
			}
		})
	}
	clients.Wait()
	has := want(t, k.get(t, "index.php?title=Shared&action=raw"), 200, "").Text
	for _, text := range texts {
		if n := strings.Count(has, text); n != 1 {
			t.Errorf("%s is there %d times", text, n)
		}
	}
}
