// Package storedruns issues the run numbers of call numbers from Caddy's storage, each
// number once, to all processes that share the storage.
//
// The key orderly/call_numbers/next_run holds the next run number in decimal. The
// storage's lock does not keep processes apart when its holder dies: certmagic may then
// grant it to several contenders. So uniqueness rests on something else:
//
//   - For files, it is a lock of the kernel, which ends with its process.
//   - For any other storage, it is a claim for each run, which at most one process can win,
//     provided that a stored value can be read from then on. The storage's lock only keeps
//     processes from obstructing each other.
//
// The first run is 0.
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

// Next takes a run number. Before Next returns, the record that keeps others from taking
// the same number is stored. If no number is left, the error wraps
// [uniqueid.ErrRunsExhausted].
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

// nextLocked claims a run while it holds the storage's lock.
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
	return nextByClaim(ctx, storage)
}

// loadNext returns the next run number, 0 if none is stored.
func loadNext(ctx context.Context, storage certmagic.Storage) (int64, error) {
	text, err := storage.Load(ctx, nextKey)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the next run number from %s in %v: %w", nextKey, storage, err)
	}
	run, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || run < 0 || run > uniqueid.MaxRun+1 {
		return 0, fmt.Errorf("reading the next run number from %s in %v: want a whole number up to %d, found %q",
			nextKey, storage, uniqueid.MaxRun+1, text)
	}
	return run, nil
}
