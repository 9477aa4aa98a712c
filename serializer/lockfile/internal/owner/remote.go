//go:build unix && !aix && !solaris

package owner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Remote is the owner file of another process, open for reading. Find and Numbers may be
// called at any time. All other methods are for one goroutine at a time.
type Remote struct {
	Process *serializer.Owner
	dir     *dir.Dir

	mu      sync.Mutex // held while the file's memory is read
	file    file
	unnamed bool // its text is damaged
}

// OpenRemote opens an owner file, by its name or by that of a ticket. The error is
// [dir.ErrNotOurs] if it is another file. If the text is damaged, the name says whose it is.
// That of a ticket does not. The file is then useless: its words may be damaged, too, and
// Update would not find the one that takes its place.
func OpenRemote(d *dir.Dir, at string) (*Remote, error) {
	fd, info, err := d.OpenFile(at, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	r := &Remote{Process: &serializer.Owner{Name: "unknown process", Alive: true}, dir: d, file: file{at, info.ID, fd, nil}}
	text := make([]byte, countAt)
	if _, err = unix.Pread(fd, text, 0); err == nil {
		lines := strings.SplitN(string(text), "\n", 4)
		if r.unnamed = len(lines) < 4 || lines[0] != name.OwnerText || !name.IsOwner(lines[1]); !r.unnamed {
			r.file.name, r.Process.Name = lines[1], lines[2]
		}
		if n := r.file.name; !strings.HasPrefix(n, name.Owners) || strings.HasPrefix(at, name.Owners) && n != at {
			err = dir.ErrNotOurs // or a copy of one
		}
	}
	if err == nil {
		err = r.file.mmap(unix.PROT_READ)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Name returns the name of the file.
func (r *Remote) Name() string { return r.file.name }

// Has reports whether a file is the owner file under another name.
func (r *Remote) Has(file dir.Info) bool { return file.ID == r.file.id }

// Update opens the file that has taken the place of this one, if there is one. The owner
// has locked it. Others have not locked what they have put there.
func (r *Remote) Update() error {
	info, err := r.dir.Info(r.file.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && r.Has(info) {
		return nil
	}
	fresh, err := OpenRemote(r.dir, r.file.name)
	if errors.Is(err, dir.ErrNotOurs) {
		return nil
	}
	if err != nil {
		return err
	}
	defer fresh.Close()
	if free, err := fresh.free(); free || fresh.unnamed || err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, fresh.file = fresh.file, r.file
	return nil
}

// Find returns what the owner says about a ticket by its number and its file. The state is
// Gone if it says nothing, perhaps because its file is damaged; see Check.
func (r *Remote) Find(number uint64, file string) (s State, rule queue.Rule) {
	_ = r.read(func(words []word, levels int) {
		for level := range levels {
			at := bucket(number, level)
			for i := at; i < at+bucketWords; i += 2 {
				if load(&words[i]).number() != number {
					continue
				}
				said := load(&words[i+1])
				rule = ruleOf(said)
				// The place may have another ticket by now.
				if w := load(&words[i]); w.number() == number && said == tag(rule, file) {
					s = w.state()
				}
				return
			}
		}
	})
	return s, rule
}

// Numbers returns the numbers of all tickets that are waiting or inside, and the last one
// that the owner has issued. A place keeps its number until another ticket takes it.
func (r *Remote) Numbers() (standing []uint64, last uint64, err error) {
	err = r.read(func(words []word, levels int) {
		for i := 0; i < levelEnd(levels); i += 2 {
			w := load(&words[i])
			if w.state().Stands() {
				standing = append(standing, w.number())
			}
			if w.number() <= name.MaxNumber { // otherwise, it was damaged
				last = max(last, w.number())
			}
		}
	})
	return standing, last, cmp.Or(err, r.Check())
}

// Check returns an error if the file is damaged, so that its owner cannot say anything. What
// is behind a cut reads as zeros up to the end of its page.
func (r *Remote) Check() (err error) {
	return cmp.Or(r.read(func(_ []word, levels int) {
		if info, statErr := dir.Stat(r.file.fd); statErr != nil || info.Size < int64(sizeOf(levels)) {
			err = errDamaged
		}
	}), err)
}

// read reads the words, unless the file is closed.
func (r *Remote) read(do func(words []word, levels int)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.mem == nil {
		return nil
	}
	return sheltered(func() error {
		levels := int(load(r.file.count()))
		if levels < 1 || levels > maxLevels {
			return errDamaged
		}
		do(r.file.words(), levels)
		return nil
	})
}

// Dead reports whether the process has ended. It may also have given up this file for
// another one.
func (r *Remote) Dead() (bool, error) {
	if err := r.Update(); err != nil {
		return false, err
	}
	return r.free()
}

// free reports whether nobody has the lock of the file. It asks for a shared lock, so that
// several processes that try at once do not mistake each other for the owner.
func (r *Remote) free() (bool, error) {
	locked, err := filelock.Try(uintptr(r.file.fd), filelock.Shared)
	if err == nil && locked {
		err = filelock.Unlock(uintptr(r.file.fd))
	}
	if err != nil {
		return false, fmt.Errorf("trying its lock: %w", err)
	}
	return locked, nil
}

// IsFree reports whether nobody has the lock of a ticket's file, because its process has
// ended, or whether it has no such file.
func IsFree(d *dir.Dir, ticket string) bool {
	fd, info, err := d.OpenFile(ticket, unix.O_RDONLY)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, dir.ErrNotOurs)
	}
	r := &Remote{file: file{ticket, info.ID, fd, nil}}
	defer r.Close()
	free, err := r.free()
	return free && err == nil
}

// Close closes the file.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file.close()
}
