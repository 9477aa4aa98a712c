package serializer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bug: a hard link with a ticket's name that somebody made to a local owner file counted
// as the ticket of a living owner. Requests waited for it while the process lived.
func TestLinkToOwnOwnerFile(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	e.unownedTime = 2 * tickInterval
	enter(t, e, arrival("b_")).Leave()
	link := filepath.Join(dir, Ticket{Prefix: "a_", Stamp: uint64(time.Now().UnixMicro())}.Name())
	for _, name := range filesOf(t, dir) {
		if strings.HasPrefix(name, ownerFiles) {
			if err := os.Link(filepath.Join(dir, name), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	get(t, started(e, arrival("a_"))).Leave()
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link: %v", err)
	}
}
