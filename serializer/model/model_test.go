// Package model checks the model of the lock-file queue with Spin.
package model

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The complete model must hold, and a model with a part left out must not:
// otherwise the model would show nothing.
func TestModel(t *testing.T) {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: apt-get install spin gcc", tool)
		}
	}
	for _, test := range []struct{ name, defines, want string }{
		{"three processes, a crash", "-DCRASHES=1", "errors: 0"},
		{"coming twice", "-DROUNDS=2 -DCRASHES=0", "errors: 0"},
		{"two requests in one process, two crashes", "-DPAIR", "errors: 0"},
		{"files removed, two requests in one process", "-DREMOVALS=1 -DCRASHES=0 -DPAIR", "errors: 0"},
		{"the guard replaced, two requests in one process", "-DSWAPS=1 -DCRASHES=0 -DPAIR", "errors: 0"},
		{"paused and resumed, two requests in one process", "-DPAUSES=1 -DCRASHES=0 -DPAIR", "errors: 0"},
		{"the latest supersedes", "-DDROPS -DCRASHES=0", "errors: 0"},
		{"without the guard", "-DNOGUARD -DCRASHES=0", "assertion violated (inside==0)"},
		{"guard checked before the file is linked", "-DSWAPS=1 -DCRASHES=0 -DPAIR -DCHECKEARLY", "assertion violated (inside==0)"},
		{"without words", "-DREMOVALS=1 -DCRASHES=0 -DNOWORD", "assertion violated (inside==0)"},
		{"word written after the file is linked", "-DREMOVALS=1 -DCRASHES=0 -DPAIR -DWORDLATE", "assertion violated (inside==0)"},
		{"words not audited", "-DREMOVALS=1 -DCRASHES=0 -DPAIR -DNOAUDIT", "assertion violated (inside==0)"},
		{"file put back of a ticket that is over", "-DREMOVALS=1 -DCRASHES=0 -DPAIR -DNORECHECK", "invalid end state"},
		{"dead not reaped", "-DNOREAP", "invalid end state"},
		{"watch set too late", "-DWATCHLATE -DCRASHES=0", "invalid end state"},
		{"resumed without a notification", "-DPAUSES=1 -DCRASHES=0 -DNORESUME", "invalid end state"},
		{"the wrong one superseded", "-DDROPS -DDROPSECOND -DCRASHES=0", "assertion violated"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			complete := strings.HasPrefix(test.want, "errors")
			out := verify(t, strings.Fields(test.defines), complete)
			if !strings.Contains(out, test.want) || complete && strings.Contains(out, "search not completed") {
				t.Errorf("want %q:\n%s", test.want, out)
			}
			t.Log(states.FindString(out))
		})
	}
}

var states = regexp.MustCompile(`\d+ states, stored`)

// verify compiles the model and lets Spin try everything. Compilers should optimize only a
// complete search: what is wrong is found in less time than that takes.
func verify(t *testing.T, defines []string, optimize bool) string {
	t.Helper()
	source, err := filepath.Abs("queue.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command(t, dir, "spin", append(append([]string{"-a"}, defines...), source)...)
	level := map[bool]string{false: "-O0", true: "-O1"}[optimize]
	command(t, dir, "gcc", "-w", level, "-DSAFETY", "-DMEMLIM=2000", "-o", "verify", "pan.c")
	return command(t, dir, "./verify", "-m100000", "-w22")
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Errorf("%s %v: %w\n%s", name, args, err, out))
	}
	return string(out)
}
