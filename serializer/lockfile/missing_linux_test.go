package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Nobody enters while a holder's file is missing, even if its process is stopped and
// cannot put it back. That applies to processes that knew the file, and to those that
// start later. They enter when the holder continues, or is killed.
func TestHolderFileRemovedWhileStopped(t *testing.T) {
	t.Parallel()
	for _, how := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			known := open(t, dir)
			holder := helper{Dir: dir, Queue: "a_"}.inside(t)
			next := joined(t, known, "a_")
			token := tokenAt(t, known, "a_", 0)
			holder.halt(t)
			remove(t, fileOf(t, dir, token))
			newcomer := open(t, dir)
			last, elsewhere := started(newcomer, "a_"), started(newcomer, "c_")
			stillWaits(t, next, "the holder is stopped, and its file missing")
			stillWaits(t, last, "the holder is stopped, and its file missing; the newcomer never saw it")
			stillWaits(t, elsewhere, "nobody can tell which queue the missing file is of")
			holder.signal(t, how)
			get(t, elsewhere).Leave()
			if how == syscall.SIGCONT {
				stillWaits(t, next, "the holder is inside again")
				holder.leave(t)
			}
			get(t, next).Leave()
			get(t, last).Leave()
		})
	}
}

// A process whose owner file was removed is known by its tickets. Bug: whoever started then took
// its only ticket for another program's, and waited for it even if the process was killed.
func TestOwnerFileRemovedWhileStopped(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			holder := helper{Dir: dir, Queue: "a_"}.inside(t)
			holder.halt(t)
			removeOwners(t, dir)
			e := open(t, dir)
			next := joined(t, e, "a_")
			stillWaits(t, next, "the holder is stopped")
			if first := queueOf(t, e, "a_").Tickets[0]; !*first.Alive {
				t.Errorf("the holder's ticket is taken for another program's: %+v", first)
			}
			holder.signal(t, how)
			if how == syscall.SIGCONT {
				stillWaits(t, next, "the holder is inside")
				holder.leave(t)
			}
			get(t, next).Leave()
		})
	}
}

// An owner file that somebody removes again and again is made again until there are too many
// that others may know. Bugs: the process then released the first one's lock, and others took
// it for dead while it was inside; and it kept all later ones open for ever.
func TestOwnerFileRemovedTooOften(t *testing.T) {
	t.Parallel()
	dir, one, other := openTwo(t)
	holder := enter(t, one, "a_")
	if n := length(t, other, "a_"); n != 1 {
		t.Fatalf("the other process knows %d tickets", n)
	}
	own := filepath.Join(dir, one.dir().own.Name)
	refused := func() bool {
		remove(t, own)
		r := <-started(one, "b_")
		if r.err == nil {
			r.turn.Leave()
		}
		return r.err != nil
	}
	for range 100 {
		refused()
	}
	if !refused() {
		t.Error("the owner file was made again for ever")
	}
	remove(t, fileOf(t, dir, holder.Token()))
	stillWaits(t, started(other, "a_"), "the holder is inside")
	if n := openFiles(t, dir); n < 60 {
		t.Errorf("only %d files are open: others may know one that is not", n)
	}
	holder.Leave()
	wait.Until(t, "the files that nobody needs are closed", func() bool { return openFiles(t, dir) < 20 })
	enter(t, one, "b_").Leave()
}

// openFiles is how many files in a directory this process has open.
func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range all {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(file, dir) {
			n++
		}
	}
	return n
}

// A waiter whose file is removed keeps its place, also while its process is stopped.
func TestWaitingFileRemoved(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(map[bool]string{false: "running", true: "stopped"}[stopped], func(t *testing.T) {
			t.Parallel()
			dir, one, other := openTwo(t)
			holder := enter(t, one, "a_")
			second := helper{Dir: dir, Queue: "a_"}.start(t)
			second.do(t, "enter")
			wait.Until(t, "the second one waits", func() bool { return length(t, one, "a_") == 2 })
			third := joined(t, other, "a_")
			if stopped {
				second.halt(t)
			}
			file := fileOf(t, dir, tokenAt(t, one, "a_", 1))
			remove(t, file)
			holder.Leave()
			if stopped {
				stillWaits(t, third, "the second one is before it, and stopped")
				second.signal(t, syscall.SIGCONT)
			}
			second.says(t, "inside")
			wait.Until(t, "the file is back", func() bool { return exists(file) })
			stillWaits(t, third, "the second one is inside")
			second.leave(t)
			get(t, third).Leave()
		})
	}
}

// A truncated or damaged owner file crashes nobody and admits nobody: processes that have
// mapped it continue, and its owner makes another one. A copy of it counts for nothing.
func TestOwnerFileDamaged(t *testing.T) {
	t.Parallel()
	spoil := func(at int64, text string) func(file string) error {
		return func(file string) error { return overwrite(file, at, text) }
	}
	truncate := func(size int64) func(file string) error {
		return func(file string) error { return os.Truncate(file, size) }
	}
	replace := func(file string) error {
		return errors.Join(os.WriteFile(file+".new", []byte("garbage"), 0o600), os.Rename(file+".new", file))
	}
	copied := func(file string) error { // with the words of living tickets, but without a lock
		text, err := os.ReadFile(file)
		return errors.Join(err, os.WriteFile(filepath.Join(filepath.Dir(file), name.Owners+"copy"), text, 0o600))
	}
	zeros := string(make([]byte, 4096))
	for label, damage := range map[string]func(file string) error{
		"empty":          truncate(0),
		"half the text":  truncate(100),
		"without words":  truncate(4096),
		"half the words": truncate(4096 + 2048),
		"no text":        spoil(0, zeros[:100]),
		"no words":       spoil(4096, zeros),
		"wrong words":    spoil(4096, "this is not the text of an owner file, but that of somebody else"),
		"many levels":    spoil(4088, "\xff\xff\xff\xff\xff\xff\xff\xff"),
		"no levels":      spoil(4088, zeros[:8]),
		"replaced":       replace,
		"copied":         copied,
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir, one, other := openTwo(t)
			for range 3 {
				first := enter(t, one, "a_")
				next := joined(t, other, "a_")
				for _, file := range filesWith(t, dir, name.Owners) {
					if err := damage(filepath.Join(dir, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
				}
				stillWaits(t, next, "the first is inside")
				last := started(open(t, dir), "a_")
				stillWaits(t, last, "the first is inside, and it came later")
				first.Leave()
				get(t, next).Leave()
				get(t, last).Leave()
			}
		})
	}
}

// overwrite overwrites a part of a file.
func overwrite(file string, at int64, text string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(text), at)
	return err
}

// Bug: whoever opened the directory while an owner file's text had a wrong name opened the
// file by a ticket, and took it for that of another owner. The owner then renewed its
// file, but nobody could tell that this was the same one. So the damaged words of the
// earlier file were believed, and no ticket was issued any more. With a zero byte in the
// name, that went on even after the owner's death.
func TestOwnerNameDamaged(t *testing.T) {
	t.Parallel()
	const zeros, ones, standing = "\x00\x00\x00\x00\x00\x00\x00\x00", "\xff\xff\xff\xff\xff\xff\xff\xff", "\x03\x00\x00\x00\x00\x00\x00\x00"
	const lastPlace = 4096 + 48
	for at, damage := range map[int64]string{40: ones, 48: ones, 56: zeros} { // the start, the middle and the end of the name
		for _, fate := range []string{"continues", "is killed", "continues, and its file was removed"} {
			t.Run(fmt.Sprintf("at %d, and the owner %s", at, fate), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				holder := helper{Dir: dir, Queue: "a_"}.inside(t)
				holder.halt(t)
				file := filepath.Join(dir, filesWith(t, dir, name.Owners)[0])
				must(t, errors.Join(overwrite(file, at, damage), overwrite(file, lastPlace, standing)))
				if strings.HasSuffix(fate, "removed") {
					remove(t, file)
				}
				next := started(open(t, dir), "a_")
				stillWaits(t, next, "the holder is stopped")
				if fate == "is killed" {
					holder.signal(t, syscall.SIGKILL)
				} else {
					holder.signal(t, syscall.SIGCONT)
					stillWaits(t, next, "the holder is inside again")
					holder.leave(t)
				}
				get(t, next).Leave()
			})
		}
	}
}

// A file that is removed after its owner's file was damaged keeps its place, too. Bug: it did
// not if the owner's file was cut within a page: the words behind the cut read as free.
func TestFileRemovedBesideDamagedWords(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 4096 + 8} {
		t.Run(strconv.FormatInt(size, 10), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			known := open(t, dir)
			holder := helper{Dir: dir, Queue: "a_"}.inside(t)
			next := joined(t, known, "a_")
			holder.halt(t)
			file := fileOf(t, dir, tokenAt(t, known, "a_", 0))
			must(t, os.Truncate(file, size))
			remove(t, file)
			stillWaits(t, next, "the holder is stopped, and has lost its file and its words")
			holder.signal(t, syscall.SIGCONT)
			stillWaits(t, next, "the holder is inside")
			holder.leave(t)
			get(t, next).Leave()
		})
	}
}

// Bug: a process that had missed how a truncated owner file was renewed removed the new one
// unread when the owner died. The tickets that only that one knew were waited for as another
// program's, for five minutes.
func TestOwnerFileRenewedUnnoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	holder := helper{Dir: dir, Queue: "a_"}.inside(t)
	wait.Until(t, "its ticket is known", func() bool { return length(t, e, "a_") == 1 })
	hear := e.deaf()
	defer hear()
	path := ownerOf(t, dir, e)
	must(t, os.Truncate(path, 0))
	wait.Until(t, "it is renewed", func() bool { return statOf(t, path).Size > 0 })
	holder.leave(t)
	holder.enter(t, "inside") // with a link to the new file
	holder.signal(t, syscall.SIGKILL)
	_ = holder.Wait()
	hear()
	get(t, started(e, "a_")).Leave()
	wait.Until(t, "its files are gone", func() bool { return len(filesOf(t, dir)) == 2 })
}

// Bug: a ticket whose owner died just after all its words were damaged was taken out, but its
// file stayed if it was linked to an earlier owner file. Whoever listed the directory then
// waited for it as another program's.
func TestOwnerFileDamagedBeforeDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	holder := helper{Dir: dir, Queue: "a_"}.inside(t)
	next := joined(t, e, "a_")
	path := ownerOf(t, dir, e)
	must(t, os.Truncate(path, 0))
	wait.Until(t, "it is renewed", func() bool { return statOf(t, path).Size > 0 })
	holder.halt(t)
	stillWaits(t, next, "the holder is stopped")
	must(t, os.Truncate(path, 0))
	holder.signal(t, syscall.SIGKILL)
	get(t, next).Leave()
	wait.Until(t, "its files are gone", func() bool { return len(filesOf(t, dir)) == 2 })
}

// ownerOf is the path of the only other owner file than an engine's own.
func ownerOf(t testing.TB, dir string, e node) string {
	t.Helper()
	files := filesWith(t, dir, name.Owners)
	files = slices.DeleteFunc(files, func(file string) bool { return file == e.dir().own.Name })
	if len(files) != 1 {
		t.Fatalf("the directory has the owner files %q", files)
	}
	return filepath.Join(dir, files[0])
}
