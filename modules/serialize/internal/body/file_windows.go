package body

import (
	"crypto/rand"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// newFile creates a file in a directory. Windows removes it when it is closed,
// however the process ends.
func newFile(dir string) (*os.File, error) {
	path := filepath.Join(dir, "orderly-body-"+rand.Text())
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|windows.FILE_FLAG_DELETE_ON_CLOSE, 0o600)
}
