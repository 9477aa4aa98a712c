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
// At most one process wins. For suppose that two do, and that A stored its name before B.
// A still found its own name in step 4, so it had stored the mark before B stored its name,
// and B found that in step 2. This is the splitter of Lamport ("A fast mutual exclusion
// algorithm").
//
// If processes obstruct each other, a run may go to nobody; the lock makes that rare. Marks
// of runs long past are removed. A process that was suspended meanwhile finds no mark for
// such a run. So the winner of a run gives it up if a much later run has a mark.
const (
	claimants = directory + "/claimants"
	taken     = directory + "/taken"

	// keptMarks is for how many later runs a mark is kept.
	keptMarks = 128
	// farBeyond is how many runs later a mark makes the winner of a run give it up.
	farBeyond = keptMarks / 2
)

// nextByClaim takes the first run number that it can win.
func nextByClaim(ctx context.Context, storage certmagic.Storage) (uint32, error) {
	next, err := loadNext(ctx, storage)
	if err != nil {
		return 0, err
	}
	marks, err := listMarks(ctx, storage)
	if err != nil {
		return 0, err
	}
	// The stored number may have gone back; marks do not.
	next = max(next, lastOf(marks)+1)
	me := []byte(rand.Text())
	for won := false; !won; next++ {
		if next > uniqueid.MaxRun {
			return 0, uniqueid.ErrRunsExhausted
		}
		if won, err = claim(ctx, storage, next, me); err != nil {
			return 0, fmt.Errorf("claiming run %d in %v: %w", next, storage, err)
		}
	}
	if marks, err = listMarks(ctx, storage); err != nil {
		return 0, err
	}
	run := next - 1
	if lastOf(marks) >= run+farBeyond {
		return 0, fmt.Errorf("claiming run %d in %v: other processes have taken many runs meanwhile", run, storage)
	}
	if err := storage.Store(ctx, nextKey, strconv.AppendInt(nil, next, 10)); err != nil {
		return 0, fmt.Errorf("storing the next run number as %s in %v: %w", nextKey, storage, err)
	}
	removeMarks(ctx, storage, marks, run)
	return uint32(run), nil
}

// lastOf returns the last run that has a mark, -1 if there is none.
func lastOf(marks []int64) int64 {
	if len(marks) == 0 {
		return -1
	}
	return marks[len(marks)-1]
}

// claim reports whether this process has won the run. At most one process gets true.
func claim(ctx context.Context, storage certmagic.Storage, run int64, me []byte) (bool, error) {
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

func keyOf(prefix string, run int64) string {
	return fmt.Sprintf("%s/%s%010d", prefix, runKey, run)
}

// listMarks returns the runs that have a mark, in order.
func listMarks(ctx context.Context, storage certmagic.Storage) ([]int64, error) {
	keys, err := storage.List(ctx, taken, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the runs that are taken, as %s in %v: %w", taken, storage, err)
	}
	var runs []int64
	for _, key := range keys {
		number, ok := strings.CutPrefix(path.Base(key), runKey)
		if run, err := strconv.ParseInt(number, 10, 64); ok && err == nil && run <= uniqueid.MaxRun {
			runs = append(runs, run)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// removeMarks removes the marks of runs long before this one. If that fails, the next run
// tries again.
func removeMarks(ctx context.Context, storage certmagic.Storage, marks []int64, run int64) {
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
