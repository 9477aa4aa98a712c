//go:build unix

package recipes

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// php-fpm is restarted under load by the commands of the recipe, and no request
// fails. Without the pause, requests do.
func TestDeploy(t *testing.T) {
	const heading = "Deploy with no failed request"
	root, socket := testcaddy.SharedDir(t), filepath.Join(testcaddy.TempDir(t), "php")
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
		wait.Eventually(t, what, func() error {
			if now := count.Load(); now < before+50 {
				return fmt.Errorf("%d more", now-before)
			}
			return nil
		})
	}

	awaitMore(&served, "requests are served")
	for line := range strings.Lines(blocks(t, "recipes.md", heading, "sh")[0]) {
		command := strings.Fields(line)
		if command[0] == "systemctl" {
			fpm.Interrupt()
			fpm = testcaddy.StartPHP(t, socket)
			continue
		}
		out, errs, code := testcaddy.Output(t, append(command[1:], "--address", k.Admin)...)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s%s", line, code, out, errs)
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

	fpm.Interrupt() // without a pause
	awaitMore(&failed, "requests fail without a pause")
	fpm = testcaddy.StartPHP(t, socket)
	awaitMore(&served, "requests are served again")
}
