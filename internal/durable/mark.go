package durable

import "os"

// MarkUsed notes in a lock file that the guarded file exists, so that its loss can be
// detected. The mark is durable.
func MarkUsed(lock *os.File) error {
	used, err := IsMarkedUsed(lock)
	if err != nil || used {
		return err
	}
	if _, err := lock.WriteString("in use\n"); err != nil {
		return err
	}
	return lock.Sync()
}

// IsMarkedUsed reports whether a lock file says that the guarded file exists.
func IsMarkedUsed(lock *os.File) (bool, error) {
	info, err := lock.Stat()
	return err == nil && info.Size() > 0, err
}
