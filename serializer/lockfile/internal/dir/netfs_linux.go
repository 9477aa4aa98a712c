package dir

import "golang.org/x/sys/unix"

// networkFileSystems are file systems whose locks or notifications do not work across
// machines, by the magic number of statfs(2).
var networkFileSystems = map[uint32]string{
	0x00006969: "NFS", 0x0000517b: "SMB", 0xfe534d42: "SMB2", 0xff534d42: "CIFS", 0x01021997: "9P",
	0x5346414f: "AFS", 0x6b414653: "AFS", // OpenAFS, and the kernel's own
	0x73757245: "Coda", 0x0000564c: "NCP", 0x20030528: "OrangeFS", 0x00c36400: "Ceph",
	// Of these, locks reach the other machines, but inotify does not.
	0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
	0x19830326: "BeeGFS", 0xaad7aaea: "PanFS", 0xbeefdead: "StorNext", 0x013111a8: "IBRIX", 0x61636673: "ACFS",
	// All file systems in user space: sshfs, s3fs, GlusterFS, and virtiofs, by which a virtual
	// machine accesses its host's files.
	0x65735546: "FUSE",
	0x786f4256: "VirtualBox shared folder", 0xbacbacbc: "VMware shared folder", 0x7c7c6673: "Parallels shared folder",
}

// networkFileSystem names the network file system of a path, or returns "".
func networkFileSystem(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return ""
	}
	return networkFileSystems[uint32(st.Type)] // it has 32 bits, with or without a sign
}
