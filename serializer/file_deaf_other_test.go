//go:build !windows && (!unix || aix || solaris)

package serializer

import "time"

// openDeaf opens a directory that must be polled, as all are here.
func openDeaf(path string, clock func() time.Time) (lockDir, error) { return openLockDir(path, clock) }

// openOlder opens a directory as older versions did: nobody is woken here.
func openOlder(path string, clock func() time.Time) (lockDir, error) { return openLockDir(path, clock) }
