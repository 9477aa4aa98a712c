package storedruns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// A storage of certmagic can store, load and list, but it cannot compare and
// swap, and its lock may fail. A claim makes do with storing and loading. Each
// run has two keys, the name of its last claimant and the mark that it is taken:
//
//  1. store my name as the claimant
//  2. if the mark is there, the run is somebody else's
//  3. store the mark
//  4. if the claimant is still me, the run is mine
//
// Nobody takes the name of another, and marks are not taken back, so at most one
// process gets to the end. Say that two do, and that A stored its name before B
// did. A found its own name in step 4, which was before B stored its name, and
// A's mark was there before that. So B found the mark in step 2. This is the
// splitter of Lamport ("A fast mutual exclusion algorithm") and of Moir and
// Anderson ("Wait-free algorithms for fast, long-lived renaming").
//
// It needs no lock and no clock. It needs a storage that, once a value is
// stored, no longer gives the one before. If processes get in each other's way, a
// run may go to nobody, and a process that dies takes its run with it. The lock
// is there so that this is rare.
//
// Marks of runs long past are removed. A process that was asleep meanwhile
// finds no mark for such a run: so whoever has won a run looks whether any run
// far beyond has a mark, and if so gives its own up.
const (
	claimants = directory + "/claimants"
	taken     = directory + "/taken"

	// keptMarks is how many runs after its own a mark is kept.
	keptMarks = 128
	// farBeyond is how far the runs may have gone on for a run to be given up.
	farBeyond = keptMarks / 2
)

// errOvertaken is the error of a claim that took so long that the marks of its
// run may have been removed.
var errOvertaken = errors.New("other processes have taken many runs meanwhile")

// nextByClaim takes the first run number that it can have.
func nextByClaim(ctx context.Context, storage certmagic.Storage) (uint32, error) {
	marks, err := listMarks(ctx, storage)
	if err != nil {
		return 0, err
	}
	next, err := loadNext(ctx, storage)
	if err != nil {
		return 0, err
	}
	if len(marks) > 0 {
		// The stored number may have gone back; marks do not.
		next = max(next, marks[len(marks)-1]+1)
	}
	run, err := firstClaimed(ctx, storage, next)
	if err != nil {
		return 0, err
	}
	if marks, err = listMarks(ctx, storage); err != nil {
		return 0, err
	}
	if len(marks) > 0 && marks[len(marks)-1] >= run+farBeyond {
		return 0, fmt.Errorf("claiming run %d in %v: %w", run, storage, errOvertaken)
	}
	if err := storeNext(ctx, storage, run+1); err != nil {
		return 0, err
	}
	removeMarks(ctx, storage, marks, run)
	return uint32(run), nil
}

// firstClaimed claims runs from next on until one is won.
func firstClaimed(ctx context.Context, storage certmagic.Storage, next uint64) (uint64, error) {
	me := []byte(rand.Text())
	for run := next; run <= uniqueid.MaxRun; run++ {
		won, err := claim(ctx, storage, run, me)
		if err != nil {
			return 0, fmt.Errorf("claiming run %d in %v: %w", run, storage, err)
		}
		if won {
			return run, nil
		}
	}
	return 0, uniqueid.ErrRunsExhausted
}

// claim reports whether the run is ours. At most one process gets true.
func claim(ctx context.Context, storage certmagic.Storage, run uint64, me []byte) (bool, error) {
	claimant, mark := keyOf(claimants, run), keyOf(taken, run)
	if err := storage.Store(ctx, claimant, me); err != nil {
		return false, err
	}
	// Exists would say no when it cannot tell.
	_, err := storage.Load(ctx, mark)
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := storage.Store(ctx, mark, me); err != nil {
		return false, err
	}
	last, err := storage.Load(ctx, claimant)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed, because the run is long past
	}
	return string(last) == string(me), err
}

// runKey is the last part of a key. Without a letter, it might be the name of a
// temporary file, which storages in files list too.
const runKey = "run-"

func keyOf(prefix string, run uint64) string {
	return fmt.Sprintf("%s/%s%010d", prefix, runKey, run)
}

// listMarks is the runs that have a mark, in order.
func listMarks(ctx context.Context, storage certmagic.Storage) ([]uint64, error) {
	keys, err := storage.List(ctx, taken, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the runs that are taken, as %s in %v: %w", taken, storage, err)
	}
	var runs []uint64
	for _, key := range keys {
		number, ok := strings.CutPrefix(path.Base(key), runKey)
		if run, err := strconv.ParseUint(number, 10, 64); ok && err == nil && run <= uniqueid.MaxRun {
			runs = append(runs, run)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// removeMarks removes the marks of runs long before this one. What cannot be
// removed is tried again with the next run.
func removeMarks(ctx context.Context, storage certmagic.Storage, marks []uint64, run uint64) {
	for _, old := range marks {
		if old+keptMarks > run {
			return
		}
		// The mark last, so that a claimant without a mark is not left behind.
		if storage.Delete(ctx, keyOf(claimants, old)) != nil || storage.Delete(ctx, keyOf(taken, old)) != nil {
			return
		}
	}
}
