//go:build !unix

package durable_test

import (
	"io/fs"
	"os"
	"testing"
)

// wantPrivate fails unless what is at path is of the kind. Modes say nothing here
// of who may read it.
func wantPrivate(t *testing.T, path string, kind fs.FileMode) {
	t.Helper()
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != kind {
		t.Errorf("%s is %v, %v", path, info, err)
	}
}
