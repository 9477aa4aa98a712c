package serializer

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// outsideDir is a lock directory seen from outside, without its guard.
type outsideDir struct{ *osDir }

// openOutside opens a directory for inspection.
func openOutside(path string) (*outsideDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding lock directory: %w", err)
	}
	return &outsideDir{&osDir{path: path, clock: time.Now, guard: windows.InvalidHandle}}, nil
}

func (d *outsideDir) list() (names []string, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// byUser returns the directory as each of its users sees it. On Windows, all users see
// the same.
func (d *outsideDir) byUser() ([]*outsideDir, error) { return []*outsideDir{d}, nil }

// own returns the directory as this process's user sees it.
func (d *outsideDir) own() *outsideDir { return d }

func (d *outsideDir) mayMark() bool { return true }

func (d *outsideDir) mayRemove(string) bool { return true }

// whose identifies a file.
func (d *outsideDir) whose(name string) (fileID, string, error) {
	id, err := d.identify(name)
	return id, "another user", err
}

// pauses reports whether a pause file counts here.
func (d *outsideDir) pauses(name string) bool {
	_, _, err := d.whose(name)
	return err == nil
}

func (d *outsideDir) onlyLooks([]*outsideDir) bool { return false }

func ofRoot(string) bool { return false }

func (d *outsideDir) close() {}
