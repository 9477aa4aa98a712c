package dir

import "golang.org/x/sys/unix"

// networkFileSystem names the network file system of a path, or returns "".
func networkFileSystem(path string) string {
	var st unix.Statvfs_t
	if err := unix.Statvfs(path, &st); err != nil || st.Flag&unix.MNT_LOCAL != 0 {
		return ""
	}
	return unix.ByteSliceToString(st.Fstypename[:])
}
