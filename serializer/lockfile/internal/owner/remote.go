//go:build unix && !aix && !solaris

package owner

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Remote is the owner file of another process, open for reading. Find and Standing may be
// called at any time. All other methods are for one goroutine at a time.
type Remote struct {
	ID      dir.ID
	Name    string // of the file; empty if it was opened by a ticket
	Process *serializer.Owner

	mu   sync.Mutex // held while the file's memory is read
	file file
}

// OpenRemote opens an owner file, by its name or by that of a ticket. The error is
// [dir.ErrNotOurs] if it is another file. A file that has the name of an owner file is opened
// whatever its text is: somebody may have damaged that.
func OpenRemote(d *dir.Dir, at string) (*Remote, error) {
	fd, info, err := d.OpenFile(at, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	r := &Remote{ID: info.ID, Process: &serializer.Owner{Name: "unknown process", Alive: true}, file: file{fd: fd}}
	if strings.HasPrefix(at, name.Owners) {
		r.Name = at
	}
	text := make([]byte, textSize)
	_, err = unix.Pread(fd, text, 0)
	if first, rest, _ := strings.Cut(string(text), "\n"); first == name.OwnerText {
		r.Process.Name, _, _ = strings.Cut(rest, "\n")
	} else if r.Name == "" {
		err = dir.ErrNotOurs
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

// Find returns what the owner says about a ticket by its number and its file. The word of a
// ticket that is Gone stays until another ticket takes the place. If ok is false, there is
// no word, or the file is damaged; see [Remote.Check].
func (r *Remote) Find(number uint64, file string) (s State, rule serializer.Rule, ok bool) {
	_ = r.read(func(words []word) error {
		for n := range mostPlaces {
			i := placeOf(number, n)
			if load(&words[i]).number() != number {
				continue
			}
			said := load(&words[i+1])
			// The place may have another ticket by now.
			w := load(&words[i])
			s, rule = w.state(), ruleOf(said)
			ok = w.number() == number && said == tag(rule, file) && s.valid()
			break
		}
		return nil
	})
	return s, rule, ok
}

// read reads the words, unless the file is closed.
func (r *Remote) read(do func(words []word) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.mem == nil {
		return nil
	}
	return catchFault(func() error { return do(r.file.words()) })
}

// Dead reports whether no process has the lock of the file, because its owner has ended. It
// asks for a shared lock. So if several processes try at once, none mistakes another one
// for the owner.
func (r *Remote) Dead() bool {
	locked, _ := filelock.TryShared(uintptr(r.file.fd))
	if locked {
		_ = filelock.Unlock(uintptr(r.file.fd))
	}
	return locked
}

// Close closes the file.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file.close()
}
