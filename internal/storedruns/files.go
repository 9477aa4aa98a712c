package storedruns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/internal/durable"
	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// nextInFiles takes a run number from a storage in files, under a lock of the
// kernel. It leaves the storage's own lock alone: that stays behind when its
// holder dies, for ten seconds at least. It can stay for ever, because a process
// that had it before refreshes whatever lock it finds under that name.
//
// The error wraps [errors.ErrUnsupported] if there are no locks of the kernel.
func nextInFiles(ctx context.Context, storage *certmagic.FileStorage) (uint32, error) {
	path := storage.Filename(NextKey) + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, fmt.Errorf("making the directory of the run numbers: %w", err)
	}
	lock, err := filelock.Lock(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("locking the run numbers with %s: %w", path, err)
	}
	defer lock.Close()
	return countOn(ctx, storage)
}

// countOn takes the next run number and stores the one after it for good.
func countOn(ctx context.Context, storage *certmagic.FileStorage) (uint32, error) {
	run, err := loadNext(ctx, storage)
	if err != nil {
		return 0, err
	}
	if run > uniqueid.MaxRun {
		return 0, uniqueid.ErrRunsExhausted
	}
	if err := storeNext(ctx, storage, run+1); err != nil {
		return 0, err
	}
	if err := syncDirs(storage); err != nil {
		return 0, fmt.Errorf("making the next run number last in %v: %w", storage, err)
	}
	return uint32(run), nil
}

// syncDirs makes the file of the next run number last through a power failure.
// The storage has synced its content, but not its name.
func syncDirs(storage *certmagic.FileStorage) error {
	root := storage.Filename("")
	for dir := filepath.Dir(storage.Filename(NextKey)); ; dir = filepath.Dir(dir) {
		if err := durable.SyncDir(dir); err != nil || dir == root {
			return err
		}
	}
}
