//go:build unix

package integration_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// grpcUpstream speaks as gRPC does: over HTTP/2 without TLS, messages with a length
// before them, each flushed, and the status in the trailers. It sends back what comes.
func grpcUpstream(t *testing.T) (addr string) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		defer func() {
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set("Grpc-Message", "done with "+r.URL.Path)
		}()
		for {
			message, err := readMessage(r.Body)
			if err != nil {
				return
			}
			_, _ = w.Write(message)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// newMessage is a message of gRPC.
func newMessage(text string) []byte {
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	return append(message, text...)
}

// readMessage reads one, with what stands before it.
func readMessage(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	message := slices.Concat(head, make([]byte, binary.BigEndian.Uint32(head[1:])))
	_, err := io.ReadFull(r, message[5:])
	return message, err
}

// A gRPC client and server take turns to send, in small and large messages, and the
// trailers come last.
func TestGRPC(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"0", "256KiB"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": grpcUpstream(t)}, site: "serialize {\npath {$DIR}\nbuffer off\nresponse_buffer " + size + "\n}\nreverse_proxy h2c://{$UPSTREAM}"})
			body, send := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/talk", body)
			check(t, err)
			req.Header.Set("Content-Type", "application/grpc")
			req.Header.Set("TE", "trailers")
			answer := make(chan *http.Response, 1)
			go func() {
				resp, err := newClient(t, "2").Do(req)
				if err != nil {
					t.Error(err)
				}
				answer <- resp
			}()
			var resp *http.Response
			for i, length := range []int{0, 5, 3000, 100_000, 1_000_000, 1} {
				message := newMessage(strings.Repeat(fmt.Sprint(i), length))
				_, err := send.Write(message)
				check(t, err)
				if resp == nil {
					resp = <-answer
					defer resp.Body.Close()
				}
				if got, err := readMessage(resp.Body); err != nil || string(got) != string(message) {
					t.Fatalf("message %d: got %d bytes, %v", i, len(got), err)
				}
				if len(lockFiles(t, c.dir)) != 1 {
					t.Error("the request is not inside")
				}
			}
			check(t, send.Close())
			rest, err := io.ReadAll(resp.Body)
			if len(rest) > 0 || err != nil || resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "done with /talk" {
				t.Errorf("it ends with %q, %v, %v", rest, err, resp.Trailer)
			}
			c.wantNoTickets()
		})
	}
}

// Interim responses arrive at once, in all versions of HTTP.
func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{}, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		<-gate
		_, _ = io.WriteString(w, "page")
	}))
	t.Cleanup(server.Close)
	c := start(t, setup{tls: true, site: "serialize {\npath {$DIR}\n}\n" + proxyUpstream, env: map[string]string{"UPSTREAM": server.Listener.Addr().String()}})
	allVersions(t, func(t *testing.T, client *http.Client) {
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code != http.StatusEarlyHints || header.Get("Link") == "" {
				t.Errorf("got %d, %v", code, header)
			}
			gate <- struct{}{}
			return nil
		}}
		r := doContext(httptrace.WithClientTrace(t.Context(), trace), client, "GET", c.url, http.NoBody).Want(t, http.StatusOK)
		if r.Text != "page" {
			t.Errorf("answered %q", r.Text)
		}
	})
}

// A script that has sent its whole page, with its length, and continues to work is still
// inside. The status and the client's speed do not matter.
func TestPHPWorksOnAfterAWholePage(t *testing.T) {
	t.Parallel()
	const log = `function note($what) { file_put_contents("log", $_GET["name"] . " $what " . hrtime(true) . "\n", FILE_APPEND | LOCK_EX); }
		while (ob_get_level()) ob_end_clean();`
	php := startPHP(t, map[string]string{
		"length.php": "<?php " + log + ` note("begins"); $page = str_repeat("x", (int) $_GET["size"]); ignore_user_abort(true);
			header("Content-Length: " . strlen($page)); header("Connection: close"); echo $page; flush(); usleep(400000); note("ends");`,
		"empty.php": "<?php " + log + ` note("begins"); ignore_user_abort(true); http_response_code((int) $_GET["status"]); flush(); usleep(400000); note("ends");`,
	})
	for _, option := range []string{"", "response_buffer 0\n"} {
		c := start(t, setup{env: php.env(), site: "root {$ROOT}\nserialize {\npath {$DIR}\n" + option + "}\nphp_fastcgi unix/{$PHP}"})
		for i, path := range []string{"/length.php?size=4", "/length.php?size=3000", "/length.php?size=200000", "/empty.php?status=204", "/empty.php?status=304"} {
			name := fmt.Sprintf("%d%d", len(option), i)
			first := c.getting(path + "&name=first" + name)
			wait.Until(t, "the first has begun", func() bool { return strings.Contains(php.read(t, "log"), "first"+name+" begins") })
			c.get("/length.php?size=1&name=second"+name).Want(t, http.StatusOK)
			if r := <-first; r.Err != nil {
				t.Error(r)
			}
			order := ""
			for line := range strings.Lines(php.read(t, "log")) {
				if fields := strings.Fields(line); strings.HasSuffix(fields[0], name) {
					order += strings.TrimSuffix(fields[0], name) + " " + fields[1] + ", "
				}
			}
			if want := "first begins, first ends, second begins, second ends, "; order != want {
				t.Errorf("%s%s: %s", option, path, order)
			}
		}
	}
}

// A stop waits at most grace_period for a client that reads nothing.
func TestStopWithASlowReader(t *testing.T) {
	t.Parallel()
	for _, client := range stalledClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "", setup{tls: true, global: "metrics\ngrace_period 500ms"})
			client.send(t, c, "GET", "/page")
			c.wantMetric(left, "1")
			c.Signal(syscall.SIGTERM)
			c.AwaitEnd()
			c.wantOnlyGuard()
		})
	}
}

// A client that hangs up or resets its stream while its response is drained is forgotten
// at once.
func TestSlowReaderResets(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.1", "2", "3"} {
		t.Run("HTTP/"+version, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "", setup{tls: true, global: "metrics"})
			resp, err := newClient(t, version).Get(c.url + "/page")
			check(t, err)
			c.wantMetric(left, "1")
			began := time.Now()
			check(t, resp.Body.Close())
			c.wantNoneInFlight()
			t.Logf("forgotten after %v", time.Since(began))
		})
	}
}
