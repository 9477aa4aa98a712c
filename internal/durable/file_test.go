package durable_test

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

func TestMakeDirs(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2 {
				if err := durable.MakeDirs(deep, 0o700); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for dir := deep; dir != root; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || info.Mode()&0o077 != 0 && runtime.GOOS != "windows" { // where modes do not say that
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	file := filepath.Join(deep, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if err := durable.MakeDirs(path, 0o700); err == nil {
			t.Errorf("made a directory at %s, where a file is in the way", path)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("the file in the way holds %q, %v", text, err)
	}
}
