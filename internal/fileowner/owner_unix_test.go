//go:build unix

package fileowner

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const somebody = 12345

func makeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The owner of a directory must not get root's files by links to them, or by renaming them.
// Bug: what root made behind a link belonged to the owner of the link. Bug: who renamed a file
// of root in their directory to one that root would make, could read it.
func TestGive(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	self := uint32(os.Geteuid())
	wanted := self // users other than root can give nothing away
	if self == 0 {
		wanted = somebody
		if err := os.Chown(dir, somebody, somebody); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"secret", "other", "behind"} {
		makeFile(t, filepath.Join(outside, name))
	}
	makeFile(t, in("plain"))
	if err := errors.Join(os.Link(filepath.Join(outside, "secret"), in("linked")), os.Symlink(filepath.Join(outside, "other"), in("symlink")),
		os.Symlink(outside, in("link")), os.Mkdir(in("sub"), 0o700), os.Lchown(in("link"), int(wanted), int(wanted))); err != nil {
		t.Fatal(err)
	}
	makeFile(t, in("written"))
	if err := errors.Join(os.WriteFile(in("written"), []byte("secret"), 0o600), os.Mkdir(in("full"), 0o700), os.Mkdir(in("full/inner"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path string
		want       uint32
	}{
		{"in root's directory", filepath.Join(outside, "other"), self},
		{"behind a link to root's directory", in("link/behind"), self},
		{"a hard link", in("linked"), self},
		{"a symbolic link", in("symlink"), self},
		{"a file with content", in("written"), self},
		{"a directory with files", in("full"), self},
		{"a file", in("plain"), wanted},
		{"a directory", in("sub"), wanted},
	} {
		file, err := os.Open(test.path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		Give(file)
		info, err := file.Stat()
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != test.want {
			t.Errorf("%s belongs to %d (%v); expected %d", test.name, info.Sys().(*syscall.Stat_t).Uid, err, test.want)
		}
	}
}
