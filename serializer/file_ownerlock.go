package serializer

import (
	"errors"
	"fmt"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// An owner holds the lock of its file while it lives. When the process ends, for whatever
// reason, the kernel releases the lock.

// lockOwnerFile locks a file that this process has just made.
func lockOwnerFile(fd uintptr) error {
	locked, err := filelock.Try(fd, filelock.Exclusive)
	if err == nil && !locked {
		err = errors.New("another process has locked it")
	}
	if err != nil {
		return fmt.Errorf("locking it: %w", err)
	}
	return nil
}

// ownerIsDead tries to lock an owner's file. It asks for a shared lock, so that several
// processes that try at once do not mistake each other for the owner.
func ownerIsDead(fd uintptr) (bool, error) {
	locked, err := filelock.Try(fd, filelock.Shared)
	if err != nil {
		return false, fmt.Errorf("probing the owner's lock: %w", err)
	}
	if !locked {
		return false, nil
	}
	return true, filelock.Unlock(fd)
}
