package durable

import "os"

// MarkUsed says in a lock file that what it guards exists, so that it is missed
// when it has gone. The mark lasts.
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

// IsMarkedUsed reports whether a lock file says that what it guards exists.
func IsMarkedUsed(lock *os.File) (bool, error) {
	info, err := lock.Stat()
	return err == nil && info.Size() > 0, err
}
