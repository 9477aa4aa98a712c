//go:build unix

package recipes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// company is PHP that answers 409 if another request is at work in the same
// application.
const company = `<?php
$lock = fopen(__DIR__ . "/SHOP/work", "c");
if (!flock($lock, LOCK_EX | LOCK_NB)) {
    http_response_code(409);
    exit("not alone");
}
usleep(20000);
echo "served ", $_SERVER["SCRIPT_NAME"], " ", $_SERVER["PATH_INFO"] ?? "";
`

// Bug: the matcher looked for .php in the path. An address that reaches a
// script only by the rewrite of php_fastcgi, or with a path behind the script,
// bypassed the queue.
func TestPHPApplication(t *testing.T) {
	root, socket := testcaddy.ServePHP(t, map[string]string{
		"index.php":        strings.Replace(company, "SHOP/", "", 1),
		"page.php":         strings.Replace(company, "SHOP/", "", 1),
		"admin/index.php":  strings.Replace(company, "SHOP", "..", 1),
		"style.css":        "body {}",
		"admin/style.css":  "body {}",
		"work":             "",
		"uploads/empty.md": "",
	})
	check(t, os.Chmod(filepath.Join(root, "work"), 0o666))
	k := cookPHP(t, root, socket, false)
	scripts := []string{
		"", "index.php", "page.php", "product/5", "product/5?sort=price", "admin/", "index.php/x", "page.php/x", "index%2Ephp",
		"admin/index.php", "admin/index.php/users", "no/such.css", "style.css/", "style.css/x", "uploads/", "//index.php", "admin/../index.php",
	}
	var all sync.WaitGroup
	for range 2 {
		for _, path := range scripts {
			all.Go(func() {
				if a := <-k.get(t, path); a.Err != nil || !strings.HasPrefix(a.Text, "served") {
					t.Errorf("/%s answered %v %d %q", path, a.Err, a.StatusCode, a.Text)
				}
			})
		}
	}
	all.Wait()

	// While somebody is inside, scripts wait and static files do not.
	somebody := lockfile.Name{Prefix: "shop_", Number: uint64(time.Now().UnixMicro())}
	file := filepath.Join(k.dir, somebody.String())
	testcaddy.WriteFile(t, file, "")
	script := k.get(t, "product/5")
	k.awaitTickets(t, "shop_", 2)
	want(t, k.get(t, "style.css"), 200, "body {}")
	want(t, k.get(t, "admin/style.css"), 200, "body {}")
	check(t, os.Remove(file))
	want(t, script, 200, "served")
}

const phpHeading = "A PHP application that must run alone"

// cookPHP runs the recipe, and its part with an error page if that is wanted.
func cookPHP(t *testing.T, root, socket string, errorPage bool, pairs ...string) *kitchen {
	t.Helper()
	pairs = append(pairs, "/srv/shop", root, "/run/php/php-fpm.sock", socket)
	if errorPage {
		part := strings.NewReplacer(pairs...).Replace(blocks(t, "recipes.md", phpHeading, "caddyfile")[1])
		pairs = append(pairs, "\tfile_server\n}\n", "\tfile_server\n"+strings.TrimPrefix(part, "example.com {\n"))
	}
	return cook(t, phpHeading, pairs...)
}

// Bug: with the recipe's error page and no error.php, index.php ran a POST again whose worker
// had died after it had written the order.
func TestPHPApplicationDies(t *testing.T) {
	const order = `<?php file_put_contents(__DIR__ . "/orders", "x", FILE_APPEND); posix_kill(posix_getpid(), 9);`
	for _, test := range []struct {
		name, page string
		errorPage  bool
	}{
		{"no error page", "", false},
		{"an error page that does not exist", "", true},
		{"an error page", `<?php http_response_code(502); echo "the error page";`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			needPHP(t, "posix")
			scripts := map[string]string{"index.php": order}
			if test.page != "" {
				scripts["error.php"] = test.page
			}
			root, socket := testcaddy.ServePHP(t, scripts)
			k := cookPHP(t, root, socket, test.errorPage)
			text := ""
			if test.page != "" {
				text = "the error page"
			}
			want(t, testcaddy.Send(t, "POST", k.url+"order", "item=tea"), 502, text)
			if orders := readFile(t, root, "orders"); orders != "x" {
				t.Errorf("the order ran %d times", len(orders))
			}
		})
	}
}

// Bug: a refusal had no body, so that a browser showed its own error page, and Caddy logged
// an error for each.
func TestRefusalsThatBrowsersShow(t *testing.T) {
	for heading, queue := range map[string]string{phpHeading: "shop_", "SQLite behind a web application": "sqlite_"} {
		t.Run(queue, func(t *testing.T) {
			k := cook(t, heading, "timeout 30s", "timeout 1ms", "timeout 20s", "timeout 1ms")
			k.run(t, "caddy serialize pause --for 0 --prefix "+queue)
			a := want(t, testcaddy.Send(t, "POST", k.url, ""), 503, "Nothing was ")
			if a.Header.Get("Content-Type") != "text/html; charset=utf-8" || a.Header.Get("Retry-After") == "" {
				t.Errorf("the refusal is %v", a)
			}
			if strings.Contains(k.Log.String(), "http.log.error") {
				t.Errorf("Caddy logs an error: %s", k.Log)
			}
		})
	}
}

// A script that hangs ends its turn by read_timeout. The error page, which is PHP as well,
// has a turn of its own, and the next request is served. Bug: where error routes answered, no line above
// debug said so, though the script may still be running beside the next one.
func TestPHPApplicationHangs(t *testing.T) {
	root, socket := testcaddy.ServePHP(t, map[string]string{
		"index.php": `<?php echo "served";`,
		"hang.php":  `<?php sleep(60);`,
		"error.php": `<?php http_response_code(502); echo "the error page";`,
	})
	k := cookPHP(t, root, socket, true, "read_timeout 60s", "read_timeout 1s")
	hung := k.get(t, "hang.php")
	k.awaitTickets(t, "shop_", 1)
	next := k.get(t, "")
	k.awaitTickets(t, "shop_", 2)
	if a := testcaddy.Await(t, hung); a.StatusCode != 502 || a.Text != "the error page" {
		t.Errorf("the script that hangs is answered %d %q", a.StatusCode, a.Text)
	}
	wait.Until(t, "the log warns of the script", func() bool {
		return len(k.Log.All(func(e testprocess.Entry) bool {
			return strings.HasPrefix(e.Text("msg"), "left after its handlers timed out") && e["queue"] == "shop_" && e["level"] == "warn"
		})) == 1
	})
	want(t, next, 200, "served")
}

// phpLine is the line of the recipe for php-fpm.
func phpLine(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`php_admin_value\[.+\] = \w+`).FindString(readFile(t, docs, "recipes.md"))
}

// With the recipe's line for php-fpm, wp-cron.php does its work before it answers, inside.
func TestPHPApplicationJobs(t *testing.T) {
	root, socket := testcaddy.ServePHP(t, map[string]string{
		"wp-cron.php": `<?php if (function_exists("fastcgi_finish_request")) fastcgi_finish_request(); echo "done";`},
		phpLine(t))
	k := cookPHP(t, root, socket, false)
	want(t, k.get(t, "wp-cron.php"), 200, "done")
}

func TestFencingToken(t *testing.T) {
	const heading = "A fencing token that the upstream checks"
	php := testcaddy.Need(t, "php", "apt-get install php-cli")
	root, addr := t.TempDir(), testprocess.FreeAddr(t)
	testcaddy.WriteFile(t, filepath.Join(root, "index.php"), blocks(t, "recipes.md", heading, "php")[0])
	testprocess.Start(t, exec.CommandContext(t.Context(), php, "-S", addr, "-t", root)).AwaitText("started")
	k := cook(t, heading, "localhost:9000", addr)

	// What a client says under that name does not count.
	want(t, k.get(t, "", "X-Fencing-Token", "99999999999999999"), 200, "done: ")
	a := want(t, k.get(t, ""), 200, "done: ")
	token := strings.TrimSpace(strings.TrimPrefix(a.Text, "done: "))
	number, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		t.Fatalf("the token is %q: %v", token, err)
	}
	late := testcaddy.Send(t, "GET", "http://"+addr+"/", "", "X-Fencing-Token", strconv.FormatUint(number-1, 10))
	want(t, late, 409, "late: ")
}

// php-fpm is restarted under load by the commands of the recipe, and no request
// fails. Without the pause, requests do.
func TestDeploy(t *testing.T) {
	const heading = "Deploy with no failed request"
	root, socket := testcaddy.TempDir(t), filepath.Join(testcaddy.TempDir(t), "php")
	testcaddy.WriteFile(t, filepath.Join(root, "index.php"), `<?php usleep(5000); echo "served by ", posix_getppid();`)
	fpm := testcaddy.StartPHP(t, socket)
	k := cook(t, heading, "/srv/shop", root, "/run/php/php-fpm.sock", socket)

	var served, failed atomic.Int64
	var last atomic.Value // the latest answer
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 24 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := <-k.get(t, "")
				if a.Err != nil || a.StatusCode != 200 {
					failed.Add(1)
				} else {
					served.Add(1)
				}
				last.Store(a.Text)
			}
		})
	}
	defer clients.Wait()
	defer close(done)
	awaitMore := func(count *atomic.Int64, what string) {
		t.Helper()
		before := count.Load()
		wait.Until(t, what, func() bool { return count.Load() >= before+50 })
	}

	awaitMore(&served, "requests are served")
	for line := range strings.Lines(blocks(t, "recipes.md", heading, "sh")[0]) {
		if strings.HasPrefix(line, "systemctl") {
			fpm.End(os.Interrupt)
			fpm = testcaddy.StartPHP(t, socket)
		} else {
			k.run(t, line)
		}
	}
	awaitMore(&served, "requests are served by the new php-fpm")
	if got, want := last.Load(), fmt.Sprint("served by ", fpm.PID); got != want {
		t.Errorf("%q; expected %q", got, want)
	}
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed", n, n+served.Load())
	}
	t.Logf("%d requests served, %d failed, with a restart in a pause", served.Load(), failed.Load())

	fpm.End(os.Interrupt) // without a pause
	awaitMore(&failed, "requests fail without a pause")
	fpm = testcaddy.StartPHP(t, socket)
	awaitMore(&served, "requests are served again")
}

// needPHP skips the test if the PHP process manager, or PHP's command, or an extension of one of them is missing.
// It returns the command.
func needPHP(t *testing.T, extensions ...string) (php string) {
	t.Helper()
	php = testcaddy.Need(t, "php", "apt-get install php-cli")
	for _, program := range []string{testcaddy.Need(t, "php-fpm", "apt-get install php-fpm"), php} {
		list, err := exec.CommandContext(t.Context(), program, "-m").Output()
		check(t, err)
		for _, extension := range extensions {
			if !slices.Contains(strings.Fields(string(list)), extension) {
				t.Skipf("%s has no %s; install it with: apt-get install php-%[2]s", program, extension)
			}
		}
	}
	return php
}
