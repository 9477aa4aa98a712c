//go:build unix && !aix && !solaris

package owner

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Own is the owner file of this process. Set and State may be called at any time. All
// other methods are for one goroutine at a time.
type Own struct {
	Name string // of the last file, to which tickets are linked
	dir  *dir.Dir
	text string // for people

	mu    sync.Mutex // guards the rest, and the memory of the files
	files []*file    // the last one is at the name; see [Own.Renew] for the others
	words []word     // as they should be in the files
}

// Make makes the owner file of this process in a directory.
func Make(d *dir.Dir, now time.Time) (*Own, error) {
	o := &Own{dir: d, words: make([]word, allWords)}
	o.text = fmt.Sprintf("%s\n%s\nsince %s, program %.1000q\n", name.OwnerText, Self(), now.UTC().Format(time.RFC3339), os.Args[0])
	return o, o.create()
}

// create makes a file. It is locked and written before it gets its name. So no other process ever
// sees an incomplete one.
func (o *Own) create() (err error) {
	f, draft, final := &file{fd: -1}, name.New+name.Random(), name.Owners+name.Random()
	defer func() {
		if err != nil {
			_ = o.dir.Unlink(draft)
			f.close()
		}
	}()
	if f.fd, err = o.dir.Create(draft, dir.GroupReads); err != nil {
		return err
	}
	if locked, err := filelock.Try(uintptr(f.fd)); err != nil || !locked {
		return fmt.Errorf("locking %s: %w", draft, cmp.Or(err, error(unix.EWOULDBLOCK)))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err = dir.Write(f.fd, make([]byte, fileSize), 0); err == nil {
		err = f.mmap(unix.PROT_READ | unix.PROT_WRITE)
	}
	if err == nil {
		err = o.fillLocked(f)
	}
	if err == nil {
		err = o.dir.Rename(draft, final)
	}
	if err != nil {
		return fmt.Errorf("making %s: %w", final, err)
	}
	o.files, o.Name = append(o.files, f), final
	return nil
}

// fillLocked writes all that a file should say. The file is as long as that: a full disk is an
// error of the write before, and could not be one of a write to mapped memory.
func (o *Own) fillLocked(f *file) error {
	return catchFault(func() error {
		for i, w := range o.words {
			store(&f.words()[i], w)
		}
		copy(f.mem, o.text) // without it, nobody believes the words
		return nil
	})
}

// Put notes that a ticket is about to be made, and returns the place of its words.
func (o *Own) Put(number uint64, file string, rule serializer.Rule) (place uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := range mostPlaces {
		if i := placeOf(number, n); o.words[i].state() == Gone {
			o.storeLocked(i+1, tag(rule, file))
			o.storeLocked(i, newWord(number, Waiting))
			return uint64(i), nil
		}
	}
	return 0, errors.New("the owner file has no room for more tickets: bound how many wait")
}

// Set notes the state of a ticket, unless it is gone by now.
func (o *Own) Set(place, number uint64, s State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.words[place]; w.number() == number && w.state() != Gone {
		o.storeLocked(int(place), newWord(number, s))
	}
}

// State returns the state of a ticket.
func (o *Own) State(place, number uint64) State {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.words[place]; w.number() == number {
		return w.state()
	}
	return Gone
}

// storeLocked writes a word to all files. [Own.Repair] finds a damaged one.
func (o *Own) storeLocked(i int, w word) {
	o.words[i] = w
	for _, f := range o.files {
		_ = catchFault(func() error {
			store(&f.words()[i], w)
			return nil
		})
	}
}

// Close removes the owner file, and releases its lock.
func (o *Own) Close() {
	_ = o.dir.Unlink(o.Name)
	o.Trim(0)
}
