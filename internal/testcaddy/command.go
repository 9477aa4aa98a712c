// Package testcaddy runs Caddy with the plugin in separate processes, for tests. A test
// binary is Caddy itself: run again with a mark in its environment, it is the command
// caddy. So nothing needs to be built, and Caddy is built like the test binary, for
// example with the race detector.
//
//   - [Command] and [Output] run the command caddy with any arguments.
//   - [Start] runs a server with a Caddyfile; package testprocess runs other commands and programs.
//   - [Upstream] is a server behind a queue; it records hits, and keeps them on demand.
//   - [Send], [Await] and [Get] send requests.
//
// Everything ends with the test that started it.
package testcaddy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

const mark = "ORDERLY_TEST_CADDY"

var canBeCaddy bool

// Program is the path of the Caddy under test. The default, "", means the test binary.
var Program string

// RunIfCaddy does not return if this process was started to be Caddy. A test package
// calls it in an init.
func RunIfCaddy() {
	canBeCaddy = true
	if os.Getenv(mark) == "" {
		return
	}
	caddycmd.Main()
	os.Exit(0)
}

// Command is the command caddy with arguments, in a separate home directory. If it is
// still running at the end of the test, it is killed.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return CommandIn(t, TempDir(t), args...)
}

// CommandIn is like [Command], in a given home directory.
func CommandIn(t testing.TB, home string, args ...string) *exec.Cmd {
	t.Helper()
	if !canBeCaddy { // the child would run the tests, and so would its children
		t.Fatal("this test package does not call RunIfCaddy in an init")
	}
	program := Program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program = self
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = home
	// With the race detector, a process would end a second later, to find more.
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=50"}, os.Environ()...)
	cmd.Env = append(cmd.Env, mark+"=1", "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	cmd.WaitDelay = time.Second
	return cmd
}

// Output runs the command caddy, and returns its output and its exit code.
func Output(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return OutputOf(t, Command(t, args...))
}

// OutputOf runs a command, and returns its output and its exit code.
func OutputOf(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("running %s: %v", strings.Join(cmd.Args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Need skips the test if a program is missing.
func Need(t testing.TB, program, install string) string {
	t.Helper()
	path := testprocess.Find(program)
	if path == "" {
		t.Skipf("%s is missing; install it with: %s", program, install)
	}
	return path
}

// NeedRoot skips the test unless root runs it. what completes "only root can".
func NeedRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("only root can %s; run the tests with: sudo go test ./...", what)
	}
}

// TempDir makes a directory for the test. Other users may read it. Its path is short,
// because the paths of sockets must be short.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderly")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// WriteFile writes a file of a test.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// npmRoot is where npm's modules are. npm needs a second to say so.
var npmRoot = sync.OnceValues(exec.Command("npm", "root", "--global").Output)

// NeedModule returns the path of a file of a Node.js module. It skips the test if that is missing.
func NeedModule(t testing.TB, module, file string) string {
	t.Helper()
	Need(t, "node", "apt-get install nodejs")
	Need(t, "npm", "apt-get install npm")
	root, err := npmRoot()
	if err != nil {
		t.Fatalf("asking npm where its modules are: %v", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), module, file)
	if found, err := os.Stat(path); err != nil || found.Size() == 0 {
		t.Skipf("%s is missing; install it with: npm install --global %s (%v)", module, module, err)
	}
	return path
}
