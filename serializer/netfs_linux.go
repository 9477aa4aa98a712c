package serializer

import "golang.org/x/sys/unix"

// networkFileSystems are those whose locks or notifications do not work across
// machines, by the magic number of statfs(2).
var networkFileSystems = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xfe534d42: "SMB2",
	0xff534d42: "CIFS",
	0x65735546: "FUSE",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x0bd00bd0: "Lustre",
	0x786f4256: "VirtualBox shared folder",
	0x19830326: "BeeGFS",
	0x47504653: "GPFS",
}

// networkFileSystem names the network file system that path lies on, or
// nothing.
func networkFileSystem(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return ""
	}
	// The type is 32 bits wide in the kernel, and signed on some systems.
	return networkFileSystems[int64(uint32(st.Type))]
}
