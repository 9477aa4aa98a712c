package storedruns

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
)

// Bug: in a storage without a root, which is the working directory, the way up
// to the root never ended, and the lock was kept.
func TestFilesWithoutRoot(t *testing.T) {
	for _, root := range []string{"", ".", "./", "below", "below/", "./below/../other"} {
		t.Run(root, func(t *testing.T) {
			t.Chdir(t.TempDir())
			storage := &certmagic.FileStorage{Path: root}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for want := range uint32(3) {
				if run, err := Next(ctx, storage); err != nil || run != want {
					t.Fatalf("took run %d, %v; expected %d", run, err, want)
				}
			}
		})
	}
}
