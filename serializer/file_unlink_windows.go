package serializer

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// unlink removes a file, and frees its name at once. Other processes may have the file
// open, to check whether its owner is alive. If deletion has no POSIX semantics, as on
// FAT and in Wine 8, the name would stay until they close the file. They would keep
// waiting.
func (d *osDir) unlink(name string) error {
	h, err := d.open(name, windows.DELETE, windows.OPEN_EXISTING)
	if err != nil {
		if info, statErr := os.Lstat(d.file(name)); statErr == nil && info.IsDir() {
			err = errNotFile
		}
		return &fs.PathError{Op: "remove", Path: d.file(name), Err: err}
	}
	defer windows.CloseHandle(h)
	flags := uint32(windows.FILE_DISPOSITION_DELETE | windows.FILE_DISPOSITION_POSIX_SEMANTICS)
	if windows.SetFileInformationByHandle(h, windows.FileDispositionInfoEx, (*byte)(unsafe.Pointer(&flags)), uint32(unsafe.Sizeof(flags))) == nil {
		return nil
	}
	// If renaming fails, the file still goes, only later. If this process dies before the
	// next call, it leaves a file that no process reads.
	_ = rename(h, d.file(removedFiles+strings.ToLower(rand.Text()[:16])))
	remove := byte(1)
	if err := windows.SetFileInformationByHandle(h, windows.FileDispositionInfo, &remove, 1); err != nil {
		return &fs.PathError{Op: "remove", Path: d.file(name), Err: err}
	}
	return nil
}

// removedFiles are files that are being removed. All processes ignore them.
const removedFiles = ownFiles + "removed-"

// rename gives an open file another path.
func rename(h windows.Handle, path string) error {
	text, err := windows.UTF16FromString(path)
	if err != nil {
		return fmt.Errorf("renaming to %q: %w", path, err)
	}
	var info struct { // FILE_RENAME_INFO
		replace uint32
		root    windows.Handle
		length  uint32 // in bytes, without the zero at the end
		path    [4 * windows.MAX_PATH]uint16
	}
	if len(text) > len(info.path) {
		return fmt.Errorf("renaming to %q: the path is too long", path)
	}
	info.length = uint32(len(text)-1) * 2
	copy(info.path[:], text)
	return windows.SetFileInformationByHandle(h, windows.FileRenameInfo, (*byte)(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
}
