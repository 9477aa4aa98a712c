package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// FileRunStore is a [RunStore] in a file, for all processes of one machine.
//
// The file holds one readable line: the last run issued, and a checksum. To issue a
// run, a process locks path.lock, reads the file, and writes the next number to
// path.tmp. It syncs that to the disk, renames it to path, syncs the directory, and
// only then uses the number. The kernel releases the lock when a process dies. Whenever
// that happens, the file holds either the previous number, which nobody will use again,
// or the next, which is lost. So no run is issued twice.
//
// A file that cannot be read is an error, never a guess. So is a missing file:
// path.lock says that it existed. If both are deleted, runs start again from 1, and
// call numbers repeat. The same happens if the file is restored from an old copy; a
// process that notices refuses.
//
// The file must be on a local disk. Nothing is promised on a network file system, where
// locks and renames may behave differently.
type FileRunStore struct {
	path string
	// given is the last run that this process has obtained.
	given atomic.Uint32
}

// NewFileRunStore makes a store in the file at path. The directory must exist;
// the file is made when the first run is taken. The first run is 1.
func NewFileRunStore(path string) *FileRunStore { return &FileRunStore{path: path} }

const runFileFormat = "call_number run %d crc32 %08x\n"

func (s *FileRunStore) lockPath() string { return s.path + ".lock" }

// NextRun issues the next run. It waits for other processes for as long as the context
// allows.
func (s *FileRunStore) NextRun(ctx context.Context) (uint32, error) {
	lock, err := filelock.Lock(ctx, s.lockPath())
	if err != nil {
		return 0, fmt.Errorf("locking the run file %s: %w", s.path, err)
	}
	defer lock.Close()

	last, err := s.read(lock)
	if err != nil {
		return 0, fmt.Errorf("reading the run file %s: %w", s.path, err)
	}
	if given := s.given.Load(); last < given {
		return 0, fmt.Errorf("reading the run file %s: it says run %d, but run %d has been handed out", s.path, last, given)
	}
	if last >= MaxRun {
		return 0, fmt.Errorf("run file %s: %w", s.path, ErrRunsExhausted)
	}
	if err := s.write(lock, last+1); err != nil {
		return 0, fmt.Errorf("writing the run file %s: %w", s.path, err)
	}
	s.given.Store(last + 1)
	return last + 1, nil
}

// read returns the last run that was issued, 0 if there was none.
func (s *FileRunStore) read(lock *os.File) (uint32, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, s.missing(lock)
	}
	if err != nil {
		return 0, err
	}
	var run, sum uint32
	_, err = fmt.Sscanf(string(data), runFileFormat, &run, &sum)
	if err != nil || string(data) != runFileLine(run) {
		return 0, fmt.Errorf("it is damaged: want %q with the last run and the checksum of the number, found %.100q", runFileFormat, data)
	}
	return run, nil
}

// missing returns an error if the file existed but is gone.
func (s *FileRunStore) missing(lock *os.File) error {
	used, err := durable.IsMarkedUsed(lock)
	if err != nil {
		return err
	}
	if used || s.given.Load() > 0 {
		return fmt.Errorf("it has gone: put it back, or numbers would repeat: %w", fs.ErrNotExist)
	}
	return nil
}

func runFileLine(run uint32) string {
	return fmt.Sprintf(runFileFormat, run, crc32.ChecksumIEEE(fmt.Append(nil, run)))
}

// write replaces the last run atomically. The lock file says that there is a run file
// only once that is so.
func (s *FileRunStore) write(lock *os.File, run uint32) error {
	if err := durable.ReplaceFile(s.path, runFileLine(run)); err != nil {
		return err
	}
	return durable.MarkUsed(lock)
}
