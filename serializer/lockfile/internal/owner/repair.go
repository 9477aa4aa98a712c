//go:build unix && !aix && !solaris

package owner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Other programs may truncate, overwrite, remove, copy or replace an owner file.
//
// The owner also keeps the words for itself. From time to time, it compares them with the
// file, and writes them again if they differ. If the file's name is gone, it makes another file
// with the same words. It keeps the earlier file locked, and goes on writing to it: other
// processes may have that one open, and may never see the other one.
//
// An owner file is what it is by its inode, not by its name. So the owner of a ticket, which is a
// link to the file, can be found by the ticket.

// errDamaged means that somebody else has truncated or changed an owner file.
var errDamaged = errors.New("another program has changed it")

// maxFiles is how many files are kept. No more are made until the earlier ones can be closed.
const maxFiles = 64

// Renew makes another file, with the same words. What somebody has put in the place of the last one
// is removed.
func (o *Own) Renew() error {
	before := o.Name
	if len(o.files) == maxFiles {
		return fmt.Errorf("making another file than %s: that was done %d times while tickets were out; wait until they have left", before, maxFiles)
	}
	err := o.create()
	if err == nil {
		_ = o.dir.Unlink(before) // it may be a directory
	}
	return err
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

// Trim closes the earliest files but for the last keep. No ticket may be out: a process that
// knows only a closed file takes its owner for dead.
func (o *Own) Trim(keep int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.files) > keep {
		o.files[0].close()
		o.files = o.files[1:]
	}
}

// Repair repairs what somebody has changed. It returns what that was, if anything, and why it could
// not be repaired.
func (o *Own) Repair() (damage, err error) {
	o.mu.Lock()
	for _, f := range o.files {
		intact := false
		_ = catchFault(func() error {
			intact = string(f.mem[:len(o.text)]) == o.text && slices.Equal(f.words(), o.words)
			return nil
		})
		if !intact {
			damage, err = errDamaged, cmp.Or(unix.Ftruncate(f.fd, fileSize), o.fillLocked(f), err)
		}
	}
	last := o.files[len(o.files)-1].id
	o.mu.Unlock()
	info, lost := o.dir.Info(o.Name)
	if lost == nil && info.ID != last {
		lost = dir.ErrNotOurs
	}
	if lost != nil {
		return lost, o.Renew()
	}
	return damage, err
}

// Has reports whether a file is one of these.
func (o *Own) Has(id dir.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.files, func(f *file) bool { return f.id == id })
}

// Standing returns the numbers of all tickets that are waiting or inside.
func (r *Remote) Standing() (standing []uint64, err error) {
	err = r.read(func(words []word) error {
		for i := 0; i < allWords; i += 2 {
			if w := load(&words[i]); w.state().Stands() {
				standing = append(standing, w.number())
			}
		}
		return r.checkLocked()
	})
	return standing, err
}

// Check returns an error if the file is damaged, so that its owner cannot say anything.
func (r *Remote) Check() error {
	return r.read(func([]word) error { return r.checkLocked() })
}

// checkLocked returns an error if the file was cut or overwritten. What is behind a cut reads as zeros
// up to the end of its page. The owner repairs the text last.
func (r *Remote) checkLocked() error {
	info, err := dir.Stat(r.file.fd)
	if err != nil || info.Size < fileSize || string(r.file.mem[:len(name.OwnerText)]) != name.OwnerText {
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
