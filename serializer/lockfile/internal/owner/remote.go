//go:build unix && !aix && !solaris

package owner

import (
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Remote is the owner file of another process, open for reading. It is safe for concurrent
// use.
type Remote struct {
	Process string // for people
	ID      dir.ID // of the file

	mu   sync.Mutex // held while the file's memory is read
	file file
}

// OpenRemote opens an owner file, by its name or by that of a ticket. The error is
// [ErrNoOwner] if it is another file. If the text is damaged, the name says whose it is.
func OpenRemote(d *dir.Dir, name string) (_ *Remote, err error) {
	fd, info, err := d.OpenFile(name, unix.O_RDONLY)
	if err == dir.ErrNotPlain {
		return nil, ErrNoOwner
	}
	if err != nil {
		return nil, err
	}
	r := &Remote{ID: info.ID, Process: "unknown process", file: file{fd: fd}}
	text := make([]byte, countAt)
	if _, err = unix.Pread(r.file.fd, text, 0); err == nil {
		lines := strings.SplitN(string(text), "\n", 4)
		if len(lines) == 4 && lines[0] == firstLine && r.file.setName(lines[1]) {
			r.Process = lines[2]
		} else if !r.file.setName(name) {
			err = ErrNoOwner
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

// Session names the process's work in the directory. The files of one session have the
// same words; the newest one counts.
func (r *Remote) Session() string { return r.file.session }

// OlderThan reports whether another file is of the same session and newer.
func (r *Remote) OlderThan(name string) bool {
	var f file
	return f.setName(name) && f.session == r.file.session && f.generation > r.file.generation
}

// Find returns what the owner says about a ticket. The word is zero if it says nothing. The
// error means that the file is damaged, so the owner cannot say anything.
func (r *Remote) Find(number uint64) (found Word, rule queue.Rule, err error) {
	err = r.read(func(words []Word, levels int) {
		for level := range levels {
			at := bucket(number, level)
			for i := at; i < at+bucketWords; i += 2 {
				if load(&words[i]).Number() != number {
					continue
				}
				rule = ruleOf(load(&words[i+1]))
				// The place may have another ticket by now.
				if w := load(&words[i]); w.Number() == number {
					found = w
				}
				return
			}
		}
	})
	return found, rule, err
}

// All returns the words of all tickets.
func (r *Remote) All() (all []Word, err error) {
	err = r.read(func(words []Word, levels int) {
		for i := 0; i < levelEnd(levels); i += 2 {
			if w := load(&words[i]); w != 0 {
				all = append(all, w)
			}
		}
	})
	return all, err
}

// read reads the words, unless the file is closed.
func (r *Remote) read(do func(words []Word, levels int)) error {
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

// Dead reports whether the process has ended or has given up the file. It asks for a shared
// lock, so that several processes that try at once do not mistake each other for the owner.
func (r *Remote) Dead() (bool, error) {
	locked, err := filelock.Try(uintptr(r.file.fd), filelock.Shared)
	if err == nil && locked {
		err = filelock.Unlock(uintptr(r.file.fd))
	}
	if err != nil {
		return false, fmt.Errorf("trying its lock: %w", err)
	}
	return locked, nil
}

// Close closes the file.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file.close()
}
