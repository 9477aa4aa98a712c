//go:build unix

package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// phpFPM is a PHP process manager that serves the scripts of a directory.
type phpFPM struct {
	root   string // of the scripts, which may write here
	socket string
}

// startPHP starts php-fpm in the foreground, on a socket of its own.
func startPHP(t *testing.T, scripts map[string]string) *phpFPM {
	t.Helper()
	const install = "install it with: apt-get install php-fpm php-cli"
	program := findPHP()
	if program == "" {
		t.Skip("no php-fpm here; " + install)
	}
	p := &phpFPM{root: testcaddy.TempDir(t), socket: filepath.Join(testcaddy.TempDir(t), "php")}
	check(t, os.Chmod(p.root, 0o777))
	for name, script := range scripts {
		testcaddy.WriteFile(t, filepath.Join(p.root, name), script)
	}
	config := filepath.Join(testcaddy.TempDir(t), "fpm.conf")
	user := ""
	if os.Geteuid() == 0 {
		user = "user = nobody\ngroup = nogroup\n"
	}
	testcaddy.WriteFile(t, config, fmt.Sprintf(`[global]
daemonize = no
error_log = /dev/stderr
[test]
%slisten = %s
listen.mode = 0666
pm = static
pm.max_children = 8
clear_env = yes
`, user, p.socket))

	fpm := testcaddy.StartProcess(t, exec.Command(program, "--nodaemonize", "--fpm-config", config))
	t.Cleanup(func() {
		fpm.Signal(syscall.SIGTERM) // which its children do not survive
		fpm.AwaitEnd()
	})
	fpm.AwaitText("ready to handle connections")
	return p
}

// findPHP returns the path of php-fpm. Debian has it under its version.
func findPHP() string {
	if path, err := exec.LookPath("php-fpm"); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if found, _ := filepath.Glob(filepath.Join(dir, "php-fpm*")); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// env is what a site with php_fastcgi needs to know.
func (p *phpFPM) env() map[string]string {
	return map[string]string{"PHP": p.socket, "ROOT": p.root}
}

// read returns the text of a file that scripts write.
func (p *phpFPM) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.root, name))
	if os.IsNotExist(err) {
		return ""
	}
	check(t, err)
	return strings.TrimSpace(string(text))
}
