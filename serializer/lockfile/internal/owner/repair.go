//go:build unix && !aix && !solaris

package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
)

// Other programs may truncate, overwrite, remove, copy or replace an owner file.
//
// The owner also keeps the words for itself. From time to time, it compares them with the
// file. If they differ, or if the name is gone, it makes another file of the same name with
// the same words. It keeps the earlier file locked, and goes on writing to it: other
// processes may have that one open, and may never see the new name.
//
// The name is also in the file's text. So the owner of a ticket can be found by the ticket,
// which is a link to the file, even if the owner file's name was removed. It is there twice,
// so that a damaged one is not believed.

// errDamaged means that somebody else has truncated, changed or replaced an owner file.
var errDamaged = errors.New("the owner file was damaged or replaced by another program")

// maxFiles is how many files are kept. No more are made until the earlier ones can be closed.
const maxFiles = 64

// Renew makes another file of the same name, with the same words.
func (o *Own) Renew() error {
	if len(o.files) == maxFiles {
		return fmt.Errorf("making %s: it was removed %d times while tickets were out; wait until they have left", o.Name, maxFiles)
	}
	return o.create()
}

// Link makes the file of a ticket. It renews the owner file first if somebody has removed it,
// or has put there what cannot be linked to.
func (o *Own) Link(ticket string) error {
	err := o.dir.Link(o.Name, ticket)
	if errors.Is(err, fs.ErrNotExist) || err == unix.EPERM {
		if err = o.Renew(); err == nil {
			err = o.dir.Link(o.Name, ticket)
		}
	}
	return err
}

// Trim closes the earliest files, and keeps so many. No ticket may be out: a process that
// knows only a closed file takes its owner for dead.
func (o *Own) Trim(keep int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.files) > keep {
		o.files[0].close()
		o.files = o.files[1:]
	}
}

// Check returns an error if somebody has damaged or removed the file, which should then be
// renewed.
func (o *Own) Check() error {
	info, err := o.dir.Info(o.Name)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return catchFault(func() error {
		f := o.files[len(o.files)-1]
		if info.ID != f.id || info.Size < fileSize || string(f.mem[:len(o.text)]) != o.text || !slices.Equal(f.words(), o.words) {
			return errDamaged
		}
		return nil
	})
}

// Update goes on with a fresh file of the same name, if it has taken the place of this one.
// The owner has locked its fresh file. A file that another program has put there is not locked.
func (r *Remote) Update(fresh *Remote) {
	if fresh.unnamed || fresh.Dead() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, fresh.file = fresh.file, r.file
}

// Standing returns the numbers of all tickets that are waiting or inside.
func (r *Remote) Standing() (standing []uint64, err error) {
	err = r.read(func(words []word) error {
		for i := 0; i < allWords; i += 2 {
			if w := load(&words[i]); w.state().Stands() {
				standing = append(standing, w.number())
			}
		}
		return r.checkSize()
	})
	return standing, err
}

// Check returns an error if the file is damaged, so that its owner cannot say anything.
func (r *Remote) Check() error {
	return r.read(func([]word) error { return r.checkSize() })
}

// checkSize returns an error if the file was cut. What is behind a cut reads as zeros up to
// the end of its page.
func (r *Remote) checkSize() error {
	if info, err := dir.Stat(r.file.fd); err != nil || info.Size < fileSize {
		return errDamaged
	}
	return nil
}

// Abandoned reports whether no process has the lock of a file without tickets. Its owner has
// ended, or it is a copy: an owner locks a file before it gives it its name.
func (r *Remote) Abandoned() bool {
	info, err := dir.Stat(r.file.fd)
	return err == nil && info.Links == 1 && r.Dead()
}

// catchFault accesses mapped memory. A fault, because somebody has truncated the file,
// becomes an error instead of ending the process.
func catchFault(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if _, ok := fault.(interface{ Addr() uintptr }); ok {
			err = errDamaged
		} else if fault != nil {
			panic(fault)
		}
	}()
	return do()
}
