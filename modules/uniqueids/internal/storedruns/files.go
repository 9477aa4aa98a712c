package storedruns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// nextInFiles takes a run number from a file storage, under a kernel lock. It does not
// use the storage's own lock, which remains for at least ten seconds when its holder
// dies. It may even remain for ever, because an earlier holder refreshes any lock that it
// finds under that name.
//
// The error wraps [errors.ErrUnsupported] if there are no kernel locks.
func nextInFiles(ctx context.Context, storage *certmagic.FileStorage) (uint32, error) {
	path := storage.Filename(nextKey) + ".lock"
	if err := durable.MakeDirs(filepath.Dir(path)); err != nil {
		return 0, fmt.Errorf("making the directory of the run numbers: %w", err)
	}
	lock, err := filelock.Lock(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("locking the run numbers with %s: %w", path, err)
	}
	defer lock.Close()
	return countOn(ctx, storage, lock)
}

// countOn takes the next run number and durably stores the one after it. It bypasses the
// storage, whose files would belong to the user who runs the process.
func countOn(ctx context.Context, storage *certmagic.FileStorage, lock *os.File) (uint32, error) {
	run, err := loadNext(ctx, storage)
	if err == nil && run == 0 {
		err = missing(storage, lock)
	}
	if err != nil {
		return 0, err
	}
	if run > uniqueid.MaxRun {
		return 0, uniqueid.ErrRunsExhausted
	}
	file := storage.Filename(nextKey)
	if err := durable.ReplaceFile(file, strconv.FormatUint(run+1, 10)); err != nil {
		return 0, fmt.Errorf("storing the next run number in %s: %w", file, err)
	}
	if err := checkNext(ctx, storage, run+1); err != nil {
		return 0, err
	}
	if err := syncDirs(ctx, storage); err != nil {
		return 0, fmt.Errorf("making the next run number durable in %v: %w", storage, err)
	}
	if err := durable.MarkUsed(lock); err != nil {
		return 0, fmt.Errorf("noting in %s that there are run numbers: %w", lock.Name(), err)
	}
	return uint32(run), nil
}

// missing returns an error if the number existed but is gone.
func missing(storage *certmagic.FileStorage, lock *os.File) error {
	file := storage.Filename(nextKey)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	used, err := durable.IsMarkedUsed(lock)
	if err != nil {
		return fmt.Errorf("looking whether there were run numbers, in %s: %w", lock.Name(), err)
	}
	if !used {
		return nil
	}
	return fmt.Errorf("reading the next run number from %s: it has gone, and numbers would repeat: "+
		"put it back, or write a number into it that is above all runs that were used: %w", file, fs.ErrNotExist)
}

// syncDirs makes the directories below the storage's root durable. The number's file has
// been synced, but not its name. The root may be empty: then it is the working directory.
func syncDirs(ctx context.Context, storage *certmagic.FileStorage) error {
	root := filepath.Clean(storage.Path)
	dir := filepath.Dir(storage.Filename(nextKey))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
		parent := filepath.Dir(dir)
		if dir == root || parent == dir {
			return nil
		}
		dir = parent
	}
}
