//go:build unix && !aix && !solaris

package owner

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Own is the owner file of this process. Set and Stands may be called at any time. All
// other methods are for one goroutine at a time.
type Own struct {
	dir   *dir.Dir
	since time.Time

	mu      sync.Mutex // guards the rest, and the memory of the files
	file    *file
	used    []*file // earlier files, which others may still know instead of the present one
	levels  int
	words   []Word // as they should be in the file
	damaged bool   // the file is known to say something else
}

// Make makes the owner file of this process in a directory.
func Make(d *dir.Dir, now time.Time) (*Own, error) {
	o := &Own{
		dir: d, since: now, file: &file{session: name.Random(), fd: -1},
		levels: 1, words: make([]Word, levelEnd(1)),
	}
	return o, o.Renew()
}

// Name returns the name of the file, to which tickets are linked.
func (o *Own) Name() string { return o.file.name }

// Session is like [Remote.Session].
func (o *Own) Session() string { return o.file.session }

// Renew makes a file that takes the place of the present one, with the same words. It is
// written and locked before it gets its name. So nobody ever sees an incomplete one.
func (o *Own) Renew() (err error) {
	f := &file{fd: -1}
	f.setName(fmt.Sprintf("%s%s-%d", name.Owners, o.file.session, o.file.generation+1))
	draft := name.New + name.Random()
	defer func() {
		if err != nil {
			_ = o.dir.Unlink(draft)
			f.close()
		}
	}()
	if err := o.make(f, draft); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err = sheltered(func() error {
		copy(f.mem, text(f.name, o.since))
		store(f.count(), Word(o.levels))
		copy(f.words(), o.words)
		return o.dir.Rename(draft, f.name)
	})
	if err != nil {
		return err
	}
	if o.file.fd >= 0 {
		_ = o.dir.Unlink(o.file.name)
		o.used = append(o.used, o.file)
	}
	o.file, o.damaged = f, false
	return nil
}

// make makes a file with room for all words. It really writes to the file, here and in
// grow, so that a full disk is an error: a write to mapped memory could not report it.
func (o *Own) make(f *file, draft string) (err error) {
	if f.fd, err = o.dir.Create(draft); err != nil {
		return err
	}
	if locked, err := filelock.Try(uintptr(f.fd), filelock.Exclusive); err != nil || !locked {
		return fmt.Errorf("locking it: %w", errors.Join(err, unix.EWOULDBLOCK))
	}
	if err := dir.Write(f.fd, make([]byte, sizeOf(o.levels)), 0); err != nil {
		return err
	}
	return f.mmap(unix.PROT_READ | unix.PROT_WRITE)
}

// Put notes that a ticket is about to be made, and returns the place of its words. The file
// then says so, unless there is an error.
func (o *Own) Put(number uint64, rule queue.Rule) (place uint64, err error) {
	for {
		place, err = o.put(number, rule)
		switch err {
		case nil:
			return place, nil
		case errFull:
			err = o.grow()
		case errDamaged:
			o.Set(place, number, Gone)
			err = o.Renew()
		}
		if err != nil {
			return 0, fmt.Errorf("writing the owner file: %w", err)
		}
	}
}

var errFull = errors.New("there is no room for more tickets")

// put writes to a free place of the bucket in the first level that has one.
func (o *Own) put(number uint64, rule queue.Rule) (place uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for level := range o.levels {
		at := bucket(number, level)
		for i := at; i < at+bucketWords; i += 2 {
			if o.words[i] != 0 {
				continue
			}
			o.storeLocked(i+1, ruleWord(rule))
			o.storeLocked(i, newWord(number, Waiting))
			if o.damaged {
				err = errDamaged
			}
			return uint64(i), err
		}
	}
	return 0, errFull
}

// grow adds a level.
func (o *Own) grow() error {
	if o.levels == maxLevels {
		return errFull
	}
	level := make([]byte, sizeOf(o.levels+1)-sizeOf(o.levels))
	if err := dir.Write(o.file.fd, level, int64(sizeOf(o.levels))); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.levels++
	o.words = append(o.words, wordsOf(level)...)
	return sheltered(func() error {
		store(o.file.count(), Word(o.levels))
		return nil
	})
}

// Set notes the state of a ticket. A place that has another ticket's words by now stays as
// it is.
func (o *Own) Set(place, number uint64, s State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.words[place].Number() == number {
		o.storeLocked(int(place), newWord(number, s))
	}
}

// Stands reports whether the file of a ticket should exist.
func (o *Own) Stands(place, number uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.words[place].Number() == number && o.words[place].Stands()
}

// storeLocked writes a word, also to the earlier files. If one of these is damaged, the
// others know.
func (o *Own) storeLocked(i int, w Word) {
	before := o.words[i]
	o.words[i] = w
	for _, f := range o.used {
		_ = sheltered(func() error {
			store(&f.words()[i], w)
			return nil
		})
	}
	err := sheltered(func() error {
		at := &o.file.words()[i]
		o.damaged = o.damaged || load(at) != before
		store(at, w)
		return nil
	})
	o.damaged = o.damaged || err != nil
}

// maxUsed is how many earlier files are kept. A process that was stopped for so many others
// finds the present one by its name.
const maxUsed = 64

// Check returns an error if somebody has damaged or removed the file, which should then be
// renewed.
func (o *Own) Check() error {
	o.closeOldest()
	if _, err := o.dir.Info(o.file.name); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return sheltered(func() error {
		if text := text(o.file.name, o.since); o.damaged || string(o.file.mem[:len(text)]) != text || load(o.file.count()) != Word(o.levels) ||
			!slices.Equal(o.file.words()[:len(o.words)], o.words) {
			return errDamaged
		}
		return nil
	})
}

// closeOldest closes the oldest file if there are too many, and no ticket is linked to it.
func (o *Own) closeOldest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.used) <= maxUsed {
		return
	}
	if info, err := dir.Stat(o.used[0].fd); err == nil && info.Links == 0 {
		o.used[0].close()
		o.used = slices.Delete(o.used, 0, 1)
	}
}

// Refresh is like [dir.Dir.Refresh].
func (o *Own) Refresh() { o.dir.Refresh(o.file.fd) }

// Close removes the owner file, and releases its lock.
func (o *Own) Close() {
	for _, f := range append(o.used, o.file) {
		_ = o.dir.Unlink(f.name)
		f.close()
	}
}
