//go:build unix

package recipes

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// startProcess runs a server until the end of the test, and waits until
// somebody listens at an address.
func startProcess(t *testing.T, network, addr, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
		_ = log.Close()
	})
	testcaddy.Eventually(t, program+" listens", func() error {
		conn, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// phpFPM is the path of php-fpm. Debian has it under its version.
func phpFPM(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/sbin/php-fpm*", "/usr/bin/php-fpm*", "/usr/local/sbin/php-fpm*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	t.Skip("php-fpm is missing; install it with: apt-get install php-fpm")
	return ""
}

// The script counts its runs, and loses some if two are at it at once.
func TestPHPApplication(t *testing.T) {
	fpm := phpFPM(t)
	root, socket := shortDir(t), filepath.Join(shortDir(t), "php")
	testcaddy.WriteFile(t, filepath.Join(root, "index.php"), `<?php
$count = (int) @file_get_contents("count");
usleep(5000);
file_put_contents("count", $count + 1);
echo "served";
`)
	testcaddy.WriteFile(t, filepath.Join(root, "style.css"), "body {}")
	user := ""
	if os.Geteuid() == 0 {
		user = "user = nobody\ngroup = nogroup\n"
	}
	pool := filepath.Join(t.TempDir(), "fpm.conf")
	testcaddy.WriteFile(t, pool, fmt.Sprintf("[global]\ndaemonize = no\nerror_log = /dev/stderr\n[test]\n%slisten = %s\nlisten.mode = 0666\npm = static\npm.max_children = 4\n", user, socket))
	startProcess(t, "unix", socket, fpm, "--nodaemonize", "--fpm-config", pool)

	k := cook(t, "A PHP application that must run alone", "/srv/shop", root, "/run/php/php-fpm.sock", socket)
	const clients, each = 6, 5
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				if a := <-k.get(t, "index.php"); a.Err != nil || a.Text != "served" {
					t.Errorf("a script answered %v %q", a.Err, a.Text)
				}
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(root, "count"))
	if err != nil {
		t.Fatal(err)
	}
	if count, _ := strconv.Atoi(string(text)); count != clients*each {
		t.Errorf("of %d requests, %d were counted", clients*each, count)
	}

	// Where somebody is inside, scripts wait and static files do not.
	somebody := serializer.Ticket{Prefix: "shop_", Stamp: uint64(time.Now().UnixMicro())}
	file := filepath.Join(k.dir, somebody.Name())
	testcaddy.WriteFile(t, file, "")
	script := k.get(t, "")
	k.awaitTickets(t, "shop_", 2)
	want(t, k.get(t, "style.css"), 200, "body {}")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(t, script, 200, "served")
}

// shortDir is a directory that PHP's user may write to, and whose name is short
// enough for a socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "recipe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFencingToken(t *testing.T) {
	const heading = "A fencing token that the upstream checks"
	php := testcaddy.Need(t, "php", "apt-get install php-cli")
	root, addr := t.TempDir(), testcaddy.FreeAddr(t)
	testcaddy.WriteFile(t, filepath.Join(root, "index.php"), blocks(t, "recipes.md", heading, "php")[0])
	startProcess(t, "tcp", addr, php, "-S", addr, "-t", root)
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
