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

// A certmagic storage can store, load and list, but it cannot compare and swap, and its
// lock may fail. A claim only needs storing and loading. Each run has two keys: the name
// of its last claimant, and a mark that the run is taken. A process
//
//  1. stores its name as the claimant;
//  2. gives up if the mark exists: the run belongs to another process;
//  3. stores the mark;
//  4. has won the run if the claimant is still itself.
//
// No two processes have the same name, and marks are not removed. So at most one process
// wins. For suppose that two do, and that A stored its name before B did. In step 4, A
// found its own name. So that was before B stored its name, and A's mark had been stored
// before that. So B found the mark in step 2. This is the splitter of Lamport ("A fast
// mutual exclusion algorithm") and of Moir and Anderson ("Wait-free algorithms for fast,
// long-lived renaming").
//
// It needs no lock and no clock. It needs a storage that never returns an older value
// once a value is stored. If processes obstruct each other, a run may go to nobody, and a
// process that dies takes its run with it. The lock makes that rare.
//
// Marks of runs long past are removed. A process that was suspended in the meantime finds
// no mark for such a run. So the winner of a run checks whether a much later run has a
// mark, and if so, gives up its own.
const (
	claimants = directory + "/claimants"
	taken     = directory + "/taken"

	// keptMarks is for how many later runs a mark is kept.
	keptMarks = 128
	// farBeyond is how many runs later a mark makes the winner of a run give it up.
	farBeyond = keptMarks / 2
)

// errOvertaken is the error of a claim that took so long that the marks of its run may
// have been removed.
var errOvertaken = errors.New("other processes have taken many runs meanwhile")

// nextByClaim takes the first run number that it can win.
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
	if err := storage.Store(ctx, nextKey, strconv.AppendUint(nil, run+1, 10)); err != nil {
		return 0, fmt.Errorf("storing the next run number as %s in %v: %w", nextKey, storage, err)
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

// claim reports whether this process has won the run. At most one process gets true.
func claim(ctx context.Context, storage certmagic.Storage, run uint64, me []byte) (bool, error) {
	claimant, mark := keyOf(claimants, run), keyOf(taken, run)
	if err := storage.Store(ctx, claimant, me); err != nil {
		return false, err
	}
	// Exists would return false on an error, too.
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

// runKey begins the last part of a key. Without a letter, that might be the name of a
// temporary file, which file storages list, too.
const runKey = "run-"

func keyOf(prefix string, run uint64) string {
	return fmt.Sprintf("%s/%s%010d", prefix, runKey, run)
}

// listMarks returns the runs that have a mark, in order.
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

// removeMarks removes the marks of runs long before this one. If that fails, the next run
// tries again.
func removeMarks(ctx context.Context, storage certmagic.Storage, marks []uint64, run uint64) {
	for _, old := range marks {
		if old+keptMarks > run {
			return
		}
		// The mark last, so that no claimant is left without a mark.
		if storage.Delete(ctx, keyOf(claimants, old)) != nil || storage.Delete(ctx, keyOf(taken, old)) != nil {
			return
		}
	}
}
