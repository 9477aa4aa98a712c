package guard

import (
	"os"
	"testing"
)

// Bug: of two processes that made the guard at once, the later one replaced the earlier one's, and
// with it the numbers that were recorded meanwhile.
func TestGuardIsMadeOnce(t *testing.T) {
	path := t.TempDir()
	g := openGuard(t, path, "")
	if err := g.Record(1_700_000_000_000_000); err != nil {
		t.Fatal(err)
	}
	if err := makeFile(g.dir); err != nil || g.Check() != nil {
		t.Errorf("%v; the guard was replaced: %v", err, g.Check())
	}
	if files, err := os.ReadDir(path); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
}
