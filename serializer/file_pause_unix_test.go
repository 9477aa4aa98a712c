//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process of an older version, whose owner files do not name groups, has a holder in a
// queue of a paused group. Bug: to other processes, that queue was not paused, and they
// did not wait for its holder. The name decides, unless an owner says that the queue has
// no group.
func TestPausedGroupOfOlderVersion(t *testing.T) {
	dir := t.TempDir()
	owner := openAt(t, dir, 0)
	a := Arrival{Queue: QueueName("50%_ann_"), Group: "50%_{id}_"}
	holder := get(t, started(owner, a))
	forgetGroups(t, dir)
	waiter := started(owner, a)
	plain := get(t, started(owner, Arrival{Queue: QueueName("50%_all_")}))
	other := openAt(t, dir, 0)
	get(t, started(other, Arrival{Queue: "other_"})).Leave()
	if err := other.Pause(t.Context(), a.Group, time.Time{}); err != nil {
		t.Fatal(err)
	}
	expect := func(queue string, paused bool, inside, waiting int) {
		t.Helper()
		wantQueue(t, other, dir, queue, paused, inside, waiting)
	}
	expect(a.Queue, true, 1, 1)
	expect(QueueName("50%_all_"), false, 1, 0)
	holder.Leave()
	expect(a.Queue, true, 0, 1)
	if err := ResumeQueue(dir, a.Group); err != nil {
		t.Fatal(err)
	}
	get(t, waiter).Leave()
	plain.Leave()
}

// forgetGroups removes the groups from the owner files in a directory.
func forgetGroups(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ownerFiles+"*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("owner files %q, error %v", names, err)
	}
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, maxOwnerSize)
		n, _ := file.Read(text)
		if i := strings.Index(string(text[:n]), "\ngroup: "); i >= 0 {
			_, err = file.WriteAt([]byte("\nother: "), int64(i))
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
