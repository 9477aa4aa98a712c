//go:build !unix || aix || solaris

package lockfile

import (
	"errors"
	"runtime"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Store does not exist on this system, which has no tested lock that belongs to an open
// file and ends with its process.
type Store struct{ serializer.Store }

// Open fails on this system.
func Open(path string, _ Options) (*Store, error) {
	return nil, &serializer.StorageError{Op: "using lock directory", Path: path,
		Err: errors.New("lock files do not work on " + runtime.GOOS + "; use engine memory for one process")}
}
