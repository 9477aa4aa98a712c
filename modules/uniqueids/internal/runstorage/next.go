// Package runstorage issues the run numbers of call numbers from Caddy's storage, each
// number once, to all processes that share the storage.
//
// The key orderly/call_numbers/next_run holds the next run number in decimal; the first is
// 0. The storage's lock does not keep processes apart when its holder dies: certmagic may
// then grant it to several contenders. So uniqueness rests on something else:
//
//   - For files, it is a lock of the kernel, which ends with its process.
//   - For any other storage, it is a claim that at most one process can win, provided that
//     a stored value can be read from then on. The storage's lock only keeps processes from
//     obstructing each other.
//
// A storage can store, load and list, but it cannot compare and swap. To claim a run, a
// process
//
//  1. stores its name as the claimant;
//  2. picks the run after all that have a mark;
//  3. stores the mark of that run;
//  4. has won the run if the claimant is still itself.
//
// At most one process wins. For suppose that two do, and that A stored its name before B.
// A still found its own name in step 4, so it had stored the mark before B stored its name,
// and B picked a later run in step 2. This is the splitter of Lamport ("A fast mutual
// exclusion algorithm").
//
// The winner removes the marks of earlier runs; the last mark always exists. A process that
// has slept may store the mark of a run long past. It does not win that run, because others
// have stored their names meanwhile.
package runstorage

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

const (
	directory = "orderly/call_numbers"
	// nextKey is the key of the next run number.
	nextKey = directory + "/next_run"
	// claimantKey is the key of the name of the last process that has begun a claim.
	claimantKey = directory + "/claimant"
	// marks is the directory of the marks of runs that are taken.
	marks = directory + "/taken"
	// markPrefix begins a mark. Without a letter, a mark might be the name of a temporary
	// file, which file storages list, too.
	markPrefix = "run-"
	// lockName is the name of the storage's lock.
	lockName = "orderly_call_numbers"
	// longestPause is how long processes that obstruct each other wait at most before
	// they try again, each for a random time.
	longestPause = 50 * time.Millisecond
)

// Next takes a run number. Before Next returns, the record that keeps others from taking
// the same number is stored. If no number is left, the error wraps
// [uniqueid.ErrRunsExhausted].
func Next(ctx context.Context, storage certmagic.Storage) (uint32, error) {
	if files, ok := storage.(*certmagic.FileStorage); ok {
		// Not by the storage, whose files would belong to the user who runs the process.
		store, err := uniqueid.NewFileRunStore(files.Filename(nextKey))
		if err != nil {
			return 0, err
		}
		run, err := store.NextRun(ctx)
		if !errors.Is(err, errors.ErrUnsupported) {
			return run, err
		}
	}
	run, err := nextLocked(ctx, storage)
	if err != nil {
		return 0, fmt.Errorf("taking a run number from %v: %w", storage, err)
	}
	return uint32(run), nil
}

// nextLocked wins a run while it holds the storage's lock.
func nextLocked(ctx context.Context, storage certmagic.Storage) (run int64, err error) {
	if err := storage.Lock(ctx, lockName); err != nil {
		return 0, fmt.Errorf("locking: %w", err)
	}
	defer func() {
		// The lock must be released even if ctx has ended.
		if unlockErr := storage.Unlock(context.WithoutCancel(ctx), lockName); unlockErr != nil && err == nil {
			err = fmt.Errorf("unlocking: %w", unlockErr)
		}
	}()
	for {
		run, won, err := claim(ctx, storage)
		if won || err != nil {
			return run, err
		}
		time.Sleep(rand.N(longestPause))
	}
}

// claim picks a run, and reports whether this process has won it.
func claim(ctx context.Context, storage certmagic.Storage) (run int64, won bool, err error) {
	me := crand.Text()
	if err := storage.Store(ctx, claimantKey, []byte(me)); err != nil {
		return 0, false, err
	}
	run, earlier, err := pick(ctx, storage)
	if err != nil {
		return 0, false, err
	}
	if err := storage.Store(ctx, keyOf(run), []byte(me)); err != nil {
		return 0, false, err
	}
	claimant, err := storage.Load(ctx, claimantKey)
	if err != nil || string(claimant) != me {
		return 0, false, err
	}
	if err := storage.Store(ctx, nextKey, strconv.AppendInt(nil, run+1, 10)); err != nil {
		return 0, false, err
	}
	for _, mark := range earlier {
		_ = storage.Delete(ctx, keyOf(mark)) // if it fails, the next winner tries again
	}
	return run, true, nil
}

func keyOf(run int64) string { return fmt.Sprintf("%s/%s%010d", marks, markPrefix, run) }

// pick returns the next run, and the earlier ones that have a mark. The stored number may
// have gone back; marks do not.
func pick(ctx context.Context, storage certmagic.Storage) (run int64, earlier []int64, err error) {
	text, err := storage.Load(ctx, nextKey)
	if err == nil {
		run, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || run < 0 || run > uniqueid.MaxRun+1 {
			return 0, nil, fmt.Errorf("%s: want a whole number up to %d, found %q", nextKey, uniqueid.MaxRun+1, text)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, nil, err
	}
	keys, err := storage.List(ctx, marks, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, nil, err
	}
	for _, key := range keys {
		number, ok := strings.CutPrefix(path.Base(key), markPrefix)
		if mark, err := strconv.ParseInt(number, 10, 64); ok && err == nil && mark <= uniqueid.MaxRun {
			earlier = append(earlier, mark)
			run = max(run, mark+1)
		}
	}
	if run > uniqueid.MaxRun {
		return 0, nil, uniqueid.ErrRunsExhausted
	}
	return run, earlier, nil
}
