package dir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every network file system whose number x/sys knows is refused, and file
// systems on local disks are not. Bug: OrangeFS, PanFS and others were missing.
func TestNetworkFileSystems(t *testing.T) {
	for magic, network := range map[uint32]bool{
		unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true,
		unix.FUSE_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.AFS_SUPER_MAGIC: true,
		unix.AFS_FS_MAGIC: true, unix.CODA_SUPER_MAGIC: true, unix.NCP_SUPER_MAGIC: true, unix.OCFS2_SUPER_MAGIC: true,
		0x0bd00bd0: true, 0x47504653: true, 0x20030528: true, 0x19830326: true, 0x7c7c6673: true, 0x786f4256: true,
		0xaad7aaea: true, 0x61636673: true, 0xbeefdead: true,
		unix.EXT4_SUPER_MAGIC: false, unix.XFS_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false,
		unix.OVERLAYFS_SUPER_MAGIC: false, unix.F2FS_SUPER_MAGIC: false, unix.EXFAT_SUPER_MAGIC: false, 0x2fc12fc1: false,
	} {
		if name := networkFileSystems[magic]; (name != "") != network {
			t.Errorf("%#x: %q; expected a network file system: %t", magic, name, network)
		}
	}
}

// A path on a network file system is refused. Bug: a missing directory was refused after it had been made
// there.
func TestNetworkFileSystemIsRefused(t *testing.T) {
	here := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(here, &st); err != nil {
		t.Fatal(err)
	}
	networkFileSystems[uint32(st.Type)] = "of this test"
	defer delete(networkFileSystems, uint32(st.Type))
	for _, path := range []string{here, filepath.Join(here, "a", "b")} {
		if _, err := Make(path); err == nil || !strings.Contains(err.Error(), "network file system (of this test)") || !strings.Contains(err.Error(), "such as etcd") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if files, err := os.ReadDir(here); err != nil || len(files) > 0 {
		t.Errorf("made there: %v, %v", files, err)
	}
}
