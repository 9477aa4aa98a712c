package serializer_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/enginetest"
)

func TestMemoryConforms(t *testing.T) {
	enginetest.Run(t, enginetest.Options{Private: true}, func(testing.TB, int) []serializer.Engine {
		return []serializer.Engine{serializer.NewMemory(serializer.MemoryOptions{})}
	})
}

// Several engines on one directory behave like several processes.
func TestFileConforms(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*serializer.File)
		skip   []string
	}{
		{"with notification", func(*serializer.File) {}, nil},
		{"without notification", (*serializer.File).Poll, nil},
		// Bug: the ticket of another process counted as exclusive until the next tick
		// found out which rule it had. So a ticket that may be inside with two others
		// entered beside another process's reader. And a reader behind another
		// process's readers waited for up to 100 ms.
		{"without ticks", (*serializer.File).SlowTicks, []string{"evicting a waiter", "evicting a holder", "end of a pause", "random history", "many at once"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := enginetest.Options{QueueName: serializer.QueueName, Skip: c.skip, Patience: 20 * time.Second}
			enginetest.Run(t, o, func(t testing.TB, n int) (engines []serializer.Engine) {
				dir := t.TempDir()
				for range n {
					e, err := serializer.OpenFile(dir, serializer.FileOptions{})
					if err != nil {
						t.Fatal(err)
					}
					c.change(e)
					engines = append(engines, e)
				}
				t.Cleanup(func() { checkLeft(t, dir) })
				return engines
			})
		})
	}
}

// checkLeft fails the test if engines leave files in a directory besides guards and
// requests to evict.
func checkLeft(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), ".orderly-guard") || strings.HasPrefix(e.Name(), ".orderly-evict-")
	})
	if len(left) > 0 {
		t.Errorf("left in the directory: %v", left)
	}
}
