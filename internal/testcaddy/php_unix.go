//go:build unix

package testcaddy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

// ServePHP returns a directory with scripts, which may write there, and the socket of a PHP
// process manager that runs them, with these lines in its configuration.
func ServePHP(t testing.TB, scripts map[string]string, pool ...string) (root, socket string) {
	t.Helper()
	root, socket = TempDir(t), filepath.Join(TempDir(t), "php")
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range scripts {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		WriteFile(t, file, text)
	}
	StartPHP(t, socket, pool...)
	return root, socket
}

// StartPHP runs the PHP process manager at a socket until the end of the test, with these
// lines in its configuration.
func StartPHP(t testing.TB, socket string, pool ...string) *testprocess.Process {
	t.Helper()
	program, user := Need(t, "php-fpm", "apt-get install php-fpm"), ""
	if os.Geteuid() == 0 {
		user = "user = nobody\ngroup = nogroup\n"
	}
	config := filepath.Join(TempDir(t), "fpm.conf")
	WriteFile(t, config, fmt.Sprintf("[global]\ndaemonize = no\nerror_log = /dev/stderr\n[test]\n%slisten = %s\nlisten.mode = 0666\n"+
		"pm = static\npm.max_children = 8\n%s\n", user, socket, strings.Join(pool, "\n")))
	fpm := testprocess.Start(t, exec.Command(program, "--nodaemonize", "--fpm-config", config))
	t.Cleanup(func() { fpm.End(os.Interrupt) })
	fpm.AwaitText("ready to handle connections")
	return fpm
}
