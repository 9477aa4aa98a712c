//go:build unix

package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// pageSize is more than what a connection holds, and less than pageBuffer.
const (
	pageSize   = 12_000_000
	pageBuffer = "response_buffer 16MiB\n"
)

// left counts the requests that have left the queue.
const left = `requests_total{outcome="entered",queue="serializer_"}`

// pageSite serves a page from a file through a proxy, behind a queue.
func pageSite(t *testing.T, options string, s setup) *caddy {
	t.Helper()
	files := start(t, setup{site: "root {$HOME}\nfile_server"})
	testcaddy.WriteFile(t, filepath.Join(files.home, "page"), strings.Repeat("0123456789", pageSize/10))
	testcaddy.WriteFile(t, filepath.Join(files.home, "small"), "small")
	s.env = map[string]string{"FILES": strings.TrimPrefix(files.url, "http://")}
	s.site = "serialize {\npath {$DIR}\n" + pageBuffer + options + "\n}\nreverse_proxy {$FILES} {\nheader_up Host {upstream_hostport}\n}"
	return start(t, s)
}

// Bug: a queue was as slow as its slowest reader: a client that did not read kept its
// turn although the handlers had finished.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, client := range stalledClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "hold_timeout 10m", setup{tls: true, global: "metrics"})
			for range 3 {
				client.send(t, c, "GET", "/page")
			}
			c.wantMetric(left, "3")
			c.awaitTickets(0)
			if r := c.get("/small").Want(t, http.StatusOK); r.Text != "small" {
				t.Errorf("answered %q", r.Text)
			}
		})
	}
}

// Such a client still gets everything, even if Caddy stops in the meantime.
func TestSlowReaderGetsEverything(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("stops %t", stops), func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "", setup{global: "metrics\ngrace_period 1m"})
			conn := dialSlowly(t, c)
			c.wantMetric(left, "1")
			if stops {
				c.Signal(syscall.SIGTERM)
				c.awaitStopping()
			}
			text, err := io.ReadAll(conn)
			check(t, err)
			_, page, _ := bytes.Cut(text, []byte("\r\n\r\n"))
			if string(page) != strings.Repeat("0123456789", pageSize/10) {
				t.Errorf("got %d bytes of %d", len(page), pageSize)
			}
			if !stops {
				c.wantNoneInFlight()
			}
		})
	}
}

// dialSlowly asks for the page, on a connection that holds little of it.
func dialSlowly(t *testing.T, c *caddy) *net.TCPConn {
	t.Helper()
	var dialer net.Dialer
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET /page HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	check(t, err)
	return conn.(*net.TCPConn)
}

// A client that hangs up while its response is drained is forgotten. A client that reads
// nothing is cut off by the write timeout, as without a queue.
func TestSlowReaderGivesUp(t *testing.T) {
	t.Parallel()
	t.Run("hangs up", func(t *testing.T) {
		t.Parallel()
		c := pageSite(t, "", setup{global: "metrics"})
		conn := dialSlowly(t, c)
		c.wantMetric(left, "1")
		check(t, conn.Close())
		c.wantNoneInFlight()
	})
	t.Run("write timeout", func(t *testing.T) {
		t.Parallel()
		c := pageSite(t, "", setup{global: "metrics", servers: "timeouts {\nwrite 2s\n}"})
		conn := dialSlowly(t, c)
		c.wantMetric(left, "1")
		c.wantNoneInFlight()
		if text, err := io.ReadAll(conn); err == nil && len(text) > pageSize {
			t.Error("the client got everything")
		}
	})
}

// Beyond the buffer's size, and without a buffer, the client's speed determines the turn.
func TestSlowReaderBeyondTheBuffer(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"0", "16KiB"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "response_buffer "+size, setup{global: "metrics"})
			conn := dialSlowly(t, c)
			c.awaitTickets(1)
			next := c.getting("/small")
			time.Sleep(300 * time.Millisecond)
			if len(next) > 0 {
				t.Error("the next one entered")
			}
			_, err := io.Copy(io.Discard, conn)
			check(t, err)
			(<-next).Want(t, http.StatusOK)
			c.wantNoTickets()
		})
	}
}

// Bug: if hold_timeout ended just as the answer began, the client saw a closed connection
// and no status. Now it gets the answer or a 504.
func TestHoldTimeoutAtTheAnswer(t *testing.T) {
	t.Parallel()
	const hold = 100 * time.Millisecond
	for _, size := range []string{"0", "256KiB"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: "serialize {\npath {$DIR}\nprefix {http.request.uri.query.name}\nhold_timeout " + hold.String() + "\nresponse_buffer " +
				size + "\n}\nreverse_proxy {$UPSTREAM}"})
			client := newClient(t, "1.1")
			answers := make(chan testcaddy.Answer)
			const clients, each = 8, 30
			for i := range clients {
				go func() {
					work := hold - 5*time.Millisecond
					for range each {
						began := time.Now()
						r := do(client, "GET", fmt.Sprintf("%s/?name=%d&work=%s", c.url, i, work), "")
						// An answer has half a second, which a busy machine may not have.
						if r.Err != nil && time.Since(began) > hold+answerTime {
							r = testcaddy.Answer{Response: new(http.Response)}
						}
						// On to the moment at which both happen, wherever the machine has it.
						if r.StatusCode == http.StatusOK {
							work += hold / 200
						} else {
							work = work * 39 / 40
						}
						answers <- r
					}
				}()
			}
			statuses := make(map[int]int)
			for range clients * each {
				r := <-answers
				statuses[r.StatusCode]++
				if r.Err != nil || r.StatusCode == 200 && !strings.HasPrefix(r.Text, "served ") {
					t.Errorf("answered %v", r)
				}
			}
			delete(statuses, 0)
			t.Logf("answers: %v", statuses)
			if statuses[200] == 0 || statuses[504] == 0 || len(statuses) > 2 {
				t.Errorf("answers: %v, want some 200 and some 504", statuses)
			}
		})
	}
}

// Handlers around and behind a queue answer as without one.
func TestResponsesThroughOtherHandlers(t *testing.T) {
	t.Parallel()
	around := map[string]string{
		"alone":     "%s",
		"encode":    "encode gzip\n%s",
		"intercept": "intercept {\nreplace_status 202\n}\n%s",
		"copied":    "intercept {\n@missing status 404\nhandle_response @missing {\ncopy_response_headers\ncopy_response 410\n}\n}\n%s",
		"header":    "header >X-Length {http.response.header.Content-Length}\n%s",
	}
	behind := map[string]string{
		"file":    "root {$HOME}\nfile_server",
		"encoded": "route {\nencode gzip\nroot {$HOME}\nfile_server\n}",
		"proxy":   "reverse_proxy {$FILES} {\nheader_up Host {upstream_hostport}\n}",
		"recover": "reverse_proxy {$FILES} {\nheader_up Host {upstream_hostport}\n@missing status 404\nhandle_response @missing {\nrespond \"no such page\" 404\n}\n}",
	}
	files := start(t, setup{site: "root {$HOME}\nfile_server"})
	var site strings.Builder
	for _, name := range sortedKeys(around) {
		for _, next := range sortedKeys(behind) {
			for queue, line := range map[string]string{"with": "serialize {\npath {$DIR}\n}\n", "without": ""} {
				fmt.Fprintf(&site, "handle_path /%s/%s/%s/* {\n%s\n}\n", name, next, queue, fmt.Sprintf(around[name], line+behind[next]))
			}
		}
	}
	c := start(t, setup{tls: true, site: site.String(), env: map[string]string{"FILES": strings.TrimPrefix(files.url, "http://")}})
	for _, home := range []string{files.home, c.home} {
		for name, size := range map[string]int{"small.txt": 10, "medium.txt": 5000, "page.txt": 250 << 10, "large.txt": 3 << 20} {
			path := filepath.Join(home, name)
			testcaddy.WriteFile(t, path, strings.Repeat("abcdefgh\n\n", size/10))
			check(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		}
	}
	allVersions(t, func(t *testing.T, client *http.Client) {
		for _, name := range sortedKeys(around) {
			for _, next := range sortedKeys(behind) {
				for _, file := range []string{"small.txt", "medium.txt", "page.txt", "large.txt", "missing.txt"} {
					for _, request := range []string{"GET", "HEAD", "GET If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", "GET Range: bytes=5-99999"} {
						method, condition, _ := strings.Cut(request, " ")
						var answers []testcaddy.Answer
						for _, queue := range []string{"without", "with"} {
							r := do(client, method, fmt.Sprintf("%s/%s/%s/%s/%s", c.url, name, next, queue, file), "", condition)
							r.Header.Del("Date")
							if method == "HEAD" && r.Header.Get("Content-Length") == "0" {
								r.Header.Del("Content-Length") // HTTP/3 makes it up where a handler has written nothing in time
							}
							answers = append(answers, r)
						}
						if want, got := fmt.Sprint(answers[0]), fmt.Sprint(answers[1]); want != got {
							t.Errorf("%s /%s/%s/%s:\nwithout a queue %.300s\nwith           %.300s", request, name, next, file, want, got)
						}
					}
				}
			}
		}
	})
}

// PHP: a turn lasts until php-fpm ends the request.
func TestPHPWorksOn(t *testing.T) {
	t.Parallel()
	const note = `function note($what) { file_put_contents("log", $_GET["name"] . " $what\n", FILE_APPEND | LOCK_EX); }`
	php := startPHP(t, map[string]string{
		"works.php":    "<?php " + note + ` ignore_user_abort(true); echo "page"; while (ob_get_level()) ob_end_flush(); flush(); usleep(500000); note("ends");`,
		"finishes.php": "<?php " + note + ` echo "page"; fastcgi_finish_request(); usleep(2000000); note("ends");`,
		"next.php":     "<?php " + note + ` note("begins"); echo "next";`,
	})
	c := start(t, setup{env: php.env(), site: "root {$ROOT}\nserialize {\npath {$DIR}\n}\nphp_fastcgi unix/{$PHP}"})

	first := c.getting("/works.php?name=first")
	c.awaitTickets(1)
	c.get("/next.php?name=second").Want(t, http.StatusOK)
	(<-first).Want(t, http.StatusOK)
	const want = "first ends\nsecond begins"
	if got := php.read(t, "log"); got != want {
		t.Errorf("the scripts ran like this:\n%s\nwant:\n%s", got, want)
	}

	// For php-fpm, the request is over at fastcgi_finish_request.
	if r := c.get("/finishes.php?name=third").Want(t, http.StatusOK); r.Text != "page" {
		t.Errorf("answered %q", r.Text)
	}
	c.get("/next.php?name=fourth").Want(t, http.StatusOK)
	if got := php.read(t, "log"); got != want+"\nfourth begins" {
		t.Errorf("the scripts ran like this:\n%s", got)
	}
}

// A second proxy reads the body that the first one still sends, while the client uploads
// it. Bug: two readers of one body damaged it.
func TestSecondProxyDuringUpload(t *testing.T) {
	t.Parallel()
	quick, upstream := newEdgeUpstream(t), testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, env: map[string]string{"QUICK": quick.addr}, site: `
		serialize {
			path {$DIR}
			buffer 1KiB 1KiB
		}
		reverse_proxy {$QUICK} {
			@bad status 503
			handle_response @bad {
				reverse_proxy {$UPSTREAM}
			}
		}`})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("upload", i)
			quick.expect(name, []edgeStep{{Do: "fail", Unread: true}})
			conn := c.dial()
			_ = conn.SetDeadline(time.Now().Add(wait.Patience))
			fmt.Fprintf(conn, "POST /?name=%s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request: %s\r\nContent-Length: %s\r\n\r\n", name, name, strconv.Itoa(300<<10))
			for range 30 {
				if _, err := conn.Write(bytes.Repeat([]byte("x"), 10<<10)); err != nil {
					break // the request was given up
				}
				time.Sleep(time.Millisecond)
			}
			_, _ = io.CopyN(io.Discard, conn, 1) // an answer, or the end
		})
	}
	all.Wait()
	c.wantNoTickets()
	upstream.WantAlone()
	c.get("/?name=after").Want(t, http.StatusOK)
}

// forward_auth uses a separate connection and returns it. If a client then breaks off its
// upload to PHP, neither that connection nor the next one's turn may be lost.
func TestForwardAuthAndPHP(t *testing.T) {
	t.Parallel()
	php := startPHP(t, map[string]string{"upload.php": `<?php echo strlen(file_get_contents("php://input"));`})
	auth := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: auth, env: php.env(), site: `
		root {$ROOT}
		route {
			serialize {
				path {$DIR}
				buffer off
			}
			forward_auth {$UPSTREAM} {
				uri /?name=auth
			}
			php_fastcgi unix/{$PHP}
		}`})
	for range 10 {
		conn := c.dial()
		fmt.Fprintf(conn, "POST /upload.php HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", 300<<10, make([]byte, 100<<10))
		c.awaitTickets(1)
		check(t, conn.Close())
		c.awaitTickets(0)
		r := do(newClient(t, "1.1"), "POST", c.url+"/upload.php", strings.Repeat("x", 100<<10)).Want(t, http.StatusOK)
		if r.Text != strconv.Itoa(100<<10) {
			t.Fatalf("PHP got %s bytes", r.Text)
		}
	}
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}
