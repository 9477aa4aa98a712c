// Package storedruns issues the run numbers of call numbers from Caddy's storage, each
// number once, to all processes that share the storage.
//
// The key orderly/call_numbers/next_run holds the next run number in decimal; the first
// run is 0. The number is stored before it is used, so that no crash repeats a run. Two
// processes are kept apart by a lock:
//
//   - For files, it is a lock of the kernel, which ends with its process. certmagic's own
//     lock of files may let several contenders in when its holder has died.
//   - For any other storage, it is the storage's lock. If that lets two processes in at
//     once, both may get the same run.
package storedruns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

const (
	directory = "orderly/call_numbers"
	// nextKey is the key of the next run number.
	nextKey = directory + "/next_run"
	// lockName is the name of the storage's lock.
	lockName = "orderly_call_numbers"
)

// Next takes a run number, after the number of the next one is stored. If no number is
// left, the error wraps [uniqueid.ErrRunsExhausted].
func Next(ctx context.Context, storage certmagic.Storage) (uint32, error) {
	if files, ok := storage.(*certmagic.FileStorage); ok {
		// Not by the storage, whose files would belong to the user who runs the process.
		run, err := uniqueid.NewFileRunStore(files.Filename(nextKey)).NextRun(ctx)
		if !errors.Is(err, errors.ErrUnsupported) {
			return run, err
		}
	}
	return nextLocked(ctx, storage)
}

// nextLocked takes a run while it holds the storage's lock.
func nextLocked(ctx context.Context, storage certmagic.Storage) (run uint32, err error) {
	if err := storage.Lock(ctx, lockName); err != nil {
		return 0, fmt.Errorf("locking the run numbers in %v: %w", storage, err)
	}
	defer func() {
		// The lock must be released even if ctx has ended.
		if unlockErr := storage.Unlock(context.WithoutCancel(ctx), lockName); unlockErr != nil && err == nil {
			err = fmt.Errorf("unlocking the run numbers in %v: %w", storage, unlockErr)
		}
	}()
	run, err = load(ctx, storage)
	if err != nil {
		return 0, fmt.Errorf("reading the next run number from %s in %v: %w", nextKey, storage, err)
	}
	if run > uniqueid.MaxRun {
		return 0, uniqueid.ErrRunsExhausted
	}
	if err := storage.Store(ctx, nextKey, strconv.AppendUint(nil, uint64(run)+1, 10)); err != nil {
		return 0, fmt.Errorf("storing the next run number as %s in %v: %w", nextKey, storage, err)
	}
	return run, nil
}

// load returns the next run number, 0 if none is stored.
func load(ctx context.Context, storage certmagic.Storage) (uint32, error) {
	text, err := storage.Load(ctx, nextKey)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	run, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || run > uniqueid.MaxRun+1 {
		return 0, fmt.Errorf("want a whole number up to %d, found %q", uniqueid.MaxRun+1, text)
	}
	return uint32(run), nil
}
