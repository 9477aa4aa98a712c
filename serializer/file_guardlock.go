//go:build windows || (unix && !aix && !solaris)

package serializer

import "github.com/orderly-http/caddy-orderly/internal/filelock"

func (d *osDir) lock() error {
	if err := filelock.Wait(uintptr(d.guard), filelock.Exclusive); err != nil {
		return &StorageError{"locking guard file", d.guardPath, err}
	}
	return nil
}

func (d *osDir) unlock() { _ = filelock.Unlock(uintptr(d.guard)) }
