//go:build unix

// Package integration_test drives real Caddy processes with the plugin, built
// from this tree, over HTTP. Behind the queue stands a backend in the test
// process that notes on the monotonic clock who was inside when.
package integration_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

var (
	prebuilt = flag.String("caddy", "", "a Caddy that has the plugin, to test in place of one built from this tree")
	loadTime = flag.Duration("load", time.Second, "how long the tests under load run")
)

// caddyBinary is the program under test.
var caddyBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	runManyAtOnce()
	os.Exit(buildAndRun(m))
}

// runManyAtOnce lets more tests run in parallel than there are processors, for
// most of their time is waiting.
func runManyAtOnce() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0)))
	}
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orderly")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepare(dir string) error {
	// Other users run what is in it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := makeCertificate(dir); err != nil {
		return err
	}
	var err error
	caddyBinary, err = buildCaddy(dir)
	return err
}

func buildCaddy(dir string) (string, error) {
	if *prebuilt != "" {
		return filepath.Abs(*prebuilt)
	}
	if err := lookAtSources(".."); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "caddy")
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/caddy")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building Caddy: %w\n%s", err, out)
	}
	return binary, nil
}

// lookAtSources lets the cache of go test know what these tests depend on: it
// keeps account of the files that a test looks at, but not of those that
// another process does.
func lookAtSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (entry.Name()[0] == '.' || entry.Name() == "integration_test"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go" || entry.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
}
