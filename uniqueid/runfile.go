package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// FileRunStore is a [RunStore] in a file, for all processes of one user on one machine.
//
// The file holds the next run, in decimal, and a newline. So does path.lock, and the
// greater one counts: a file that is missing or was restored from an old copy does not
// repeat runs. To issue a run, a process locks both files, reads them, and writes the run
// after it into both. It syncs them to the disk, and only then uses the number. The kernel
// releases the locks when a process dies. Whenever that happens, no run is issued twice.
//
// A file that cannot be read is an error, never a guess; one that is empty was made just
// now. If both files are deleted, emptied or restored from an old copy, call numbers repeat.
//
// The files must be on a local disk. Nothing is promised on a network file system, where
// locks may behave differently.
type FileRunStore struct{ path string }

// NewFileRunStore makes a store in the file at path. The file and its directory are made
// when the first run is taken, which is 0. The error says why path cannot be that of a file.
func NewFileRunStore(path string) (*FileRunStore, error) {
	info, err := os.Stat(path)
	if path == "" || os.IsPathSeparator(path[len(path)-1]) || err == nil && info.IsDir() {
		return nil, fmt.Errorf("making a store of runs: %q is not the path of a file", path)
	}
	return &FileRunStore{path}, nil
}

// NextRun issues the next run. It waits for other processes for as long as the context
// allows. The error wraps [errors.ErrUnsupported] if the system has no such locks.
func (s *FileRunStore) NextRun(ctx context.Context) (uint32, error) {
	if s == nil || s.path == "" {
		return 0, errors.New("the store of runs has no path: make it with NewFileRunStore")
	}
	if err := durable.MakeDirs(filepath.Dir(s.path), 0o700); err != nil {
		return 0, fmt.Errorf("making the directory of the run file: %w", err)
	}
	// Somebody may remove one of the files while it is locked, and another process may lock
	// a new one. It waits for the other file then.
	var files [2]*os.File
	for i, path := range []string{s.path + ".lock", s.path} {
		file, err := filelock.Lock(ctx, path)
		if err != nil {
			return 0, fmt.Errorf("locking the run file %s: %w", s.path, err)
		}
		defer file.Close() // what was written is on the disk
		files[i] = file
	}
	return s.issue(files)
}

// issue issues the run after the last one.
func (s *FileRunStore) issue(files [2]*os.File) (uint32, error) {
	var run uint32
	for _, file := range files {
		next, err := readRun(file)
		if err != nil {
			return 0, fmt.Errorf("reading the run file %w", err)
		}
		run = max(run, next)
	}
	if run > MaxRun {
		return 0, fmt.Errorf("run file %s: %w", s.path, ErrRunsExhausted)
	}
	for _, file := range files {
		_, err := file.WriteAt([]byte(runLine(run+1)), 0) // over a number that is not longer
		if err := errors.Join(err, file.Sync()); err != nil {
			return 0, fmt.Errorf("writing the run file %s: %w", s.path, err)
		}
	}
	if err := durable.SyncDir(filepath.Dir(s.path)); err != nil { // one may be new
		return 0, fmt.Errorf("syncing the directory of the run file %s: %w", s.path, err)
	}
	return run, nil
}

// readRun reads the next run from a file, 0 if it is empty.
func readRun(file *os.File) (uint32, error) {
	text, err := io.ReadAll(file)
	if err != nil || len(text) == 0 {
		return 0, err
	}
	run, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 32)
	if err != nil || string(text) != runLine(uint32(run)) || run > MaxRun+1 {
		return 0, fmt.Errorf("%s: it is damaged: want a whole number up to %d and a newline, found %d other bytes",
			file.Name(), MaxRun+1, len(text))
	}
	return uint32(run), nil
}

func runLine(run uint32) string { return fmt.Sprintf("%d\n", run) }
