package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// FileRunStore is a [RunStore] in a file, for all processes of one machine.
//
// The file holds the next run, in decimal, and a newline. To issue a run, a process locks
// path.lock, reads the file, and writes the run after it to path.tmp. It syncs that to the
// disk, renames it to path, syncs the directory, and only then uses the number. The kernel
// releases the lock when a process dies. Whenever that happens, no run is issued twice.
//
// A file that cannot be read is an error, never a guess. So is a missing file:
// path.lock says that it existed. If both are deleted, runs start again from 0, and
// call numbers repeat. The same happens if the file is restored from an old copy; a
// process that notices refuses.
//
// The file must be on a local disk. Nothing is promised on a network file system, where
// locks and renames may behave differently.
type FileRunStore struct {
	path string
	// next is more than the last run that this process has obtained.
	next atomic.Uint32
}

// NewFileRunStore makes a store in the file at path. The file and its directory are made
// when the first run is taken, which is 0.
func NewFileRunStore(path string) *FileRunStore { return &FileRunStore{path: path} }

// NextRun issues the next run. It waits for other processes for as long as the context
// allows. The error wraps [errors.ErrUnsupported] if the system has no such locks.
func (s *FileRunStore) NextRun(ctx context.Context) (uint32, error) {
	if err := makeDir(filepath.Dir(s.path)); err != nil {
		return 0, fmt.Errorf("making the directory of the run file: %w", err)
	}
	lock, err := filelock.Lock(ctx, s.path+".lock")
	if err != nil {
		return 0, fmt.Errorf("locking the run file %s: %w", s.path, err)
	}
	defer lock.Close()

	run, err := s.read(lock)
	if err != nil {
		return 0, fmt.Errorf("reading the run file %s: %w", s.path, err)
	}
	if run > MaxRun {
		return 0, fmt.Errorf("run file %s: %w", s.path, ErrRunsExhausted)
	}
	// The lock file says that there is a run file only once that is so.
	if err := errors.Join(durable.ReplaceFile(s.path, runLine(run+1)), durable.MarkUsed(lock)); err != nil {
		return 0, fmt.Errorf("writing the run file %s: %w", s.path, err)
	}
	s.next.Store(run + 1)
	return run, nil
}

// read returns the next run, 0 if none was issued.
func (s *FileRunStore) read(lock *os.File) (uint32, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, s.missing(lock)
	}
	if err != nil {
		return 0, err
	}
	run, err := strconv.ParseUint(strings.TrimSuffix(string(data), "\n"), 10, 32)
	if err != nil || string(data) != runLine(uint32(run)) || run > MaxRun+1 {
		return 0, fmt.Errorf("it is damaged: want a whole number up to %d and a newline, found %.100q", MaxRun+1, data)
	}
	if next := s.next.Load(); uint32(run) < next {
		return 0, fmt.Errorf("it says run %d, but run %d has been handed out", run, next-1)
	}
	return uint32(run), nil
}

func runLine(run uint32) string { return fmt.Sprintf("%d\n", run) }

// missing returns an error if the file existed but is gone.
func (s *FileRunStore) missing(lock *os.File) error {
	used, err := durable.IsMarkedUsed(lock)
	if err != nil || !used && s.next.Load() == 0 {
		return err
	}
	return fmt.Errorf("it has gone, and numbers would repeat: put it back, or write a number into it "+
		"that is above all runs that were used: %w", fs.ErrNotExist)
}

// makeDir makes a directory and its missing parents, durably.
func makeDir(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := makeDir(parent); err != nil {
		return err
	}
	return errors.Join(durable.MakeDirs(path, 0o700), durable.SyncDir(parent))
}
