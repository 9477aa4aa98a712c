//go:build unix && !aix && !solaris

package serializer

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func (d *osDir) changes(fn func(change, []byte)) error {
	if d.notes != nil {
		lost, err := d.notes.read(fn)
		if err != nil {
			return &StorageError{"reading changes of lock directory", d.path, err}
		}
		if !lost {
			return nil
		}
	}
	fn(listing, nil)
	names, err := d.list()
	if err != nil {
		if d.notes != nil {
			d.notes.mistrust() // so that the next call lists the directory, too
		}
		return &StorageError{"listing lock directory", d.path, err}
	}
	for _, name := range names {
		fn(appeared, []byte(name))
	}
	return nil
}

func (d *osDir) list() ([]string, error) {
	fd, err := d.openat(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	return f.Readdirnames(-1)
}

func (d *osDir) wait(timeout time.Duration) {
	if d.notes != nil {
		d.notes.wait(timeout)
		return
	}
	d.polls.wait(timeout)
}

func (d *osDir) interrupt() {
	if d.notes != nil {
		d.notes.interrupt()
		return
	}
	d.polls.interrupt()
}

func (d *osDir) notifies() bool { return d.notes != nil }
