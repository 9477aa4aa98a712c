//go:build unix && !aix && !solaris

package dir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

// Make opens the directory for a path, and makes it and its parents if they are missing. If
// everybody may write to it, it opens a directory of this user's own there. It refuses
// network file systems.
func Make(path string) (*Dir, error) {
	if err := durable.MakeDirs(path, 0o750); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode()&0o002 != 0 {
		path, err = makeOwn(path)
	}
	if err != nil {
		return nil, err
	}
	if kind := networkFileSystem(path); kind != "" {
		return nil, fmt.Errorf("it is on a network file system (%s), where locks or notifications do not reach other machines; "+
			"use a local directory, or an engine for several machines, such as etcd", kind)
	}
	return open(path)
}

// makeOwn makes a directory of this user's own, and returns its path.
func makeOwn(path string) (string, error) {
	own := filepath.Join(path, "orderly-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(own, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(own, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: own, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return "", fmt.Errorf("everybody may write there, and %s is no directory that belongs to user %d alone; remove it, or choose another directory",
			own, os.Geteuid())
	}
	return own, nil
}
