package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// FileRunStore is a [RunStore] in a file, for all processes of one machine.
//
// The file holds the next run, in decimal, and a newline. So does path.lock, and the
// greater one counts: a file that is missing or was restored from an old copy does not
// repeat runs. To issue a run, a process locks path.lock, reads both files, and writes the
// run after it into both. It syncs them to the disk, and only then uses the number. The
// kernel releases the lock when a process dies. Whenever that happens, no run is issued
// twice.
//
// A file that cannot be read is an error, never a guess. If both files are deleted or
// restored from an old copy, call numbers repeat.
//
// The files must be on a local disk. Nothing is promised on a network file system, where
// locks and renames may behave differently.
type FileRunStore struct{ path string }

// NewFileRunStore makes a store in the file at path. The file and its directory are made
// when the first run is taken, which is 0.
func NewFileRunStore(path string) *FileRunStore { return &FileRunStore{path} }

// NextRun issues the next run. It waits for other processes for as long as the context
// allows. The error wraps [errors.ErrUnsupported] if the system has no such locks.
func (s *FileRunStore) NextRun(ctx context.Context) (uint32, error) {
	if err := durable.MakeDirs(filepath.Dir(s.path), 0o700); err != nil {
		return 0, fmt.Errorf("making the directory of the run file: %w", err)
	}
	for {
		lock, err := filelock.Lock(ctx, s.path+".lock")
		if err != nil {
			return 0, fmt.Errorf("locking the run file %s: %w", s.path, err)
		}
		run, err := s.issue(lock)
		isLocked := filelock.IsAt(lock, lock.Name())
		_ = lock.Close() // what was written is on the disk
		// If somebody has removed the lock file meanwhile, another process may have issued
		// the same run with a new one. Only the run of the file that is there counts.
		if err != nil || isLocked {
			return run, err
		}
	}
}

// issue issues the run after the last one.
func (s *FileRunStore) issue(lock *os.File) (uint32, error) {
	run, err := s.read(lock)
	if err != nil {
		return 0, fmt.Errorf("reading the run file %w", err)
	}
	if run > MaxRun {
		return 0, fmt.Errorf("run file %s: %w", s.path, ErrRunsExhausted)
	}
	next := runLine(run + 1)
	_, err = lock.WriteAt([]byte(next), 0) // over a number that is not longer
	if err := errors.Join(err, lock.Sync(), durable.ReplaceFile(s.path, next)); err != nil {
		return 0, fmt.Errorf("writing the run file %s: %w", s.path, err)
	}
	return run, nil
}

// read returns the next run, 0 if none was issued.
func (s *FileRunStore) read(lock *os.File) (uint32, error) {
	text, err := io.ReadAll(lock)
	if err == nil && len(text) == 0 { // it was made just now
		err = fs.ErrNotExist
	}
	last, lastErr := parseRun(lock.Name(), text, err)
	text, err = os.ReadFile(s.path)
	stored, storedErr := parseRun(s.path, text, err)
	return max(last, stored), errors.Join(lastErr, storedErr)
}

func runLine(run uint32) string { return fmt.Sprintf("%d\n", run) }

// parseRun parses what was read from a file, 0 if it does not exist.
func parseRun(path string, text []byte, err error) (uint32, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	run, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 32)
	if err != nil || string(text) != runLine(uint32(run)) || run > MaxRun+1 {
		return 0, fmt.Errorf("%s: it is damaged: want a whole number up to %d and a newline, found %.100q",
			path, MaxRun+1, text)
	}
	return uint32(run), nil
}
