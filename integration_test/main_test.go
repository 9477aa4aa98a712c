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
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orderly")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if caddyBinary, err = buildCaddy(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func buildCaddy(dir string) (string, error) {
	if *prebuilt != "" {
		return filepath.Abs(*prebuilt)
	}
	// Other users run it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
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
