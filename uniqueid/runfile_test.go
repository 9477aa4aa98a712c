package uniqueid

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

func newRunFile(t *testing.T) (*FileRunStore, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs")
	return Must(NewFileRunStore(path)), path
}

func wantRun(t *testing.T, store *FileRunStore, want uint32) {
	t.Helper()
	if run, err := store.NextRun(t.Context()); err != nil || run != want {
		t.Fatalf("run is %d, %v, want %d", run, err, want)
	}
}

func wantNoRun(t *testing.T, store *FileRunStore, want string) {
	t.Helper()
	run, err := store.NextRun(t.Context())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("run is %d, error is %v, want %s", run, err, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestRunFileCounts(t *testing.T) {
	store, path := newRunFile(t)
	wantRun(t, store, 0)
	wantRun(t, store, 1)
	wantRun(t, Must(NewFileRunStore(path)), 2)
	wantRun(t, store, 3)
	text, err := os.ReadFile(path)
	if want := "4\n"; err != nil || string(text) != want {
		t.Errorf("the file says %q, %v, want %q", text, err, want)
	}
}

func TestRunFileDamaged(t *testing.T) {
	for _, text := range []string{
		"\n", "4", "04\n", "-4\n", "4\n\n", "4 5\n", "1073741825\n", "spilled coffee\n", strings.Repeat("\x00", 32), strings.Repeat("x", 1000),
	} {
		store, path := newRunFile(t)
		write(t, path, text)
		wantNoRun(t, store, "reading the run file "+path+": it is damaged: want ")
		if left, err := os.ReadFile(path); err != nil || string(left) != text {
			t.Errorf("%q was changed to %q, %v", text, left, err)
		}
		write(t, path, "4\n")
		wantRun(t, store, 4)
	}
}

// The lock file has the number, too, and the greater one counts. What a crash leaves behind
// between the steps of writing does not matter.
func TestRunFileGoneOrOld(t *testing.T) {
	store, path := newRunFile(t)
	write(t, path+".lock", "")
	write(t, path, "")
	wantRun(t, store, 0)
	write(t, path+".lock", "1\n") // and it did not come to the other file
	wantRun(t, store, 1)
	for _, want := range []uint32{2, 3} {
		check(t, os.Remove(path))
		wantRun(t, store, want)
	}
	write(t, path, "") // by somebody, or made before a crash
	wantRun(t, store, 4)
	write(t, path, "1\n") // an old copy
	wantRun(t, Must(NewFileRunStore(path)), 5)
	write(t, path, "100\n") // by somebody who starts there
	wantRun(t, store, 100)
	check(t, os.Remove(path+".lock"))
	wantRun(t, store, 101)
	write(t, path, "1073741823\n")
	wantRun(t, store, MaxRun)
	wantNoRun(t, store, "run file "+path+": "+ErrRunsExhausted.Error())
	write(t, path+".lock", "spilled coffee\n")
	wantNoRun(t, store, "reading the run file "+path+".lock: it is damaged: want ")
}

func TestRunFileMakesDirectory(t *testing.T) {
	dir := t.TempDir()
	wantRun(t, Must(NewFileRunStore(filepath.Join(dir, "a", "b", "runs"))), 0)
	write(t, filepath.Join(dir, "file"), "")
	wantNoRun(t, Must(NewFileRunStore(filepath.Join(dir, "file", "runs"))), "making the directory of the run file: ")
}

func TestRunFileLocked(t *testing.T) {
	store, path := newRunFile(t)
	lock, err := filelock.Lock(t.Context(), path+".lock")
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*filelock.Poll)
	defer cancel()
	_, err = store.NextRun(ctx)
	if want := "locking the run file " + path + ": context deadline exceeded"; err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	check(t, lock.Close())
	wantRun(t, store, 0)
}

// Bug: somebody who removed the lock file while runs were taken let two take the same one. Checking
// afterwards that the locked file was still there was not enough: a process that found that it was not
// had lowered the number in the other file by then.
func TestRunFileWithoutItsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs")
	end := time.Now().Add(time.Second)
	runs := make(chan uint32, 1<<16)
	var takers sync.WaitGroup
	for range 4 {
		takers.Go(func() {
			for time.Now().Before(end) {
				if run, err := (&FileRunStore{path}).NextRun(t.Context()); err == nil { // one may find the other's files
					runs <- run
				}
			}
		})
	}
	for time.Now().Before(end) {
		_ = os.Remove(path + ".lock")
		time.Sleep(time.Millisecond)
	}
	takers.Wait()
	close(runs)
	seen := make(map[uint32]bool)
	for run := range runs {
		if seen[run] {
			t.Fatalf("run %d was given twice", run)
		}
		seen[run] = true
	}
	if len(seen) < 10 {
		t.Errorf("only %d runs were given", len(seen))
	}
}
