//go:build unix && !aix && !solaris

package owner

import (
	"cmp"
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
	Name    string // of the file
	Process *serializer.Owner

	mu      sync.Mutex // held while the file's memory is read
	file    file
	unnamed bool // its text is damaged
}

// OpenRemote opens an owner file, by its name or by that of a ticket. The error is
// [dir.ErrNotOurs] if it is another file. If the text is damaged, the name says whose it is.
// That of a ticket does not. The file is then useless: its words may be damaged, too, and
// nobody could tell which file takes its place.
func OpenRemote(d *dir.Dir, at string) (*Remote, error) {
	fd, info, err := d.OpenFile(at, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	r := &Remote{Name: at, Process: &serializer.Owner{Name: "unknown process", Alive: true}, file: file{info.ID, fd, nil}}
	text := make([]byte, countAt)
	if _, err = unix.Pread(fd, text, 0); err == nil {
		lines := strings.SplitN(string(text), "\n", 5)
		if r.unnamed = len(lines) < 5 || lines[0] != name.OwnerText || lines[1] != lines[2] || strings.Contains(lines[1], "/"); !r.unnamed {
			r.Name, r.Process.Name = lines[1], lines[3]
		}
		if !strings.HasPrefix(r.Name, name.Owners) || strings.HasPrefix(at, name.Owners) && r.Name != at {
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

// Has reports whether a file is the owner file under another name.
func (r *Remote) Has(file dir.Info) bool { return file.ID == r.file.id }

// Update goes on with a fresh file of the same name, if it has taken the place of this one.
// The owner has locked it. Others have not locked what they have put there.
func (r *Remote) Update(fresh *Remote) {
	if fresh.unnamed || fresh.Dead() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, fresh.file = fresh.file, r.file
}

// Find returns what the owner says about a ticket by its number and its file. It keeps the
// word of one that is Gone until another ticket takes the place. If ok is false, it says
// nothing, perhaps because its file is damaged; see Check.
func (r *Remote) Find(number uint64, file string) (s State, rule queue.Rule, ok bool) {
	_ = r.read(func(words []word, levels int) {
		for level := range levels {
			at := bucket(number, level)
			for i := at; i < at+bucketWords; i += 2 {
				if load(&words[i]).number() != number {
					continue
				}
				said := load(&words[i+1])
				// The place may have another ticket by now.
				w := load(&words[i])
				s, rule = w.state(), ruleOf(said)
				ok = w.number() == number && said == tag(rule, file) && s.valid()
				return
			}
		}
	})
	return s, rule, ok
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

// Dead reports whether nobody has the lock of the file, because the process has ended. It
// asks for a shared lock, so that several processes that try at once do not mistake each
// other for the owner.
func (r *Remote) Dead() bool {
	locked, _ := filelock.Try(uintptr(r.file.fd), filelock.Shared)
	if locked {
		_ = filelock.Unlock(uintptr(r.file.fd))
	}
	return locked
}

// Abandoned reports whether nobody has the lock of a file without tickets: its process has
// ended, or it is a copy. The owner has a file locked before it gives it its name.
func (r *Remote) Abandoned() bool {
	info, err := dir.Stat(r.file.fd)
	return err == nil && info.Links == 1 && r.Dead()
}

// Close closes the file.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file.close()
}
