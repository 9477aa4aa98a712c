//go:build unix

package fileowner

import (
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

// give opens and gives what is at path, and returns whose it is then.
func give(t *testing.T, path string, heirs ...string) uint32 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	Give(file, path, heirs...)
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// The owner of a directory must not get root's files by links to them.
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
	plain, linked, symlink := filepath.Join(dir, "plain"), filepath.Join(dir, "linked"), filepath.Join(dir, "symlink")
	makeFile(t, plain)
	makeFile(t, filepath.Join(outside, "secret"))
	makeFile(t, filepath.Join(outside, "other"))
	if err := os.Link(filepath.Join(outside, "secret"), linked); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "other"), symlink); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path string
		heirs      []string
		want       uint32
	}{
		{"root's heir", plain, []string{outside}, self},
		{"a hard link", linked, []string{dir}, self},
		{"a symbolic link", symlink, []string{dir}, self},
		{"a file", plain, []string{filepath.Join(dir, "missing"), outside, dir}, wanted},
	} {
		if got := give(t, test.path, test.heirs...); got != test.want {
			t.Errorf("%s belongs to %d; expected %d", test.name, got, test.want)
		}
	}
}
