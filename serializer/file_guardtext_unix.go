//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The guard file starts with the last ticket's number: 20 digits and a line feed. A
// second line says how far numbers are reserved. It has the bound, the bound that is
// known to be on the disk, and the ID of the boot in which this was written.
const (
	guardSize   = stampDigits + 1
	confirmedAt = guardSize + stampDigits + 1
	bootAt      = confirmedAt + stampDigits + 1
)

// guardOnDisk is what is known about the guard file on the disk. A system reports a
// failed write to the disk only once, and then treats the lost data as written. So after
// a failure, the bound must be written again before it can be confirmed.
type guardOnDisk struct {
	flush func(fd int) error // flushes a file to the disk

	whole atomic.Bool // the bound has been written to the file since the last failure

	flushing sync.Mutex // held during a flush, so that nobody else gets its error
	entry    bool       // the guard file's directory entry is on the disk
}

func (d *osDir) last() (uint64, error) {
	var text [guardSize]byte
	n, err := unix.Pread(d.guard, text[:], 0)
	if err != nil {
		return 0, &StorageError{"reading guard file", d.guardPath, err}
	}
	stamp, ok := parseDigits(string(text[:min(n, stampDigits)]))
	if n != guardSize || !ok {
		return 0, nil
	}
	return stamp, nil
}

func (d *osDir) setLast(stamp uint64) error {
	var buf [guardSize]byte
	return d.writeGuard(append(appendDigits(buf[:0], stamp, stampDigits), '\n'), 0)
}

// announce closes the guard file, opened for writing, which is an event in the directory.
func (d *osDir) announce() {
	if fd, err := d.openat(filepath.Base(d.guardPath), unix.O_WRONLY, 0); err == nil {
		_ = unix.Close(fd)
	}
}

func (d *osDir) writeGuard(text []byte, at int64) error {
	n, err := unix.Pwrite(d.guard, text, at)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &StorageError{"writing guard file", d.guardPath, err}
	}
	return nil
}

// reservation reports that everything is reserved if the system does not provide a boot
// ID.
func (d *osDir) reservation() (r reservation, err error) {
	if d.boot == "" {
		return reservation{bound: maxStamp, confirmed: maxStamp}, nil
	}
	text := make([]byte, bootAt+len(d.boot)+1)
	n, err := unix.Pread(d.guard, text, 0)
	if err != nil {
		return r, &StorageError{"reading guard file", d.guardPath, err}
	}
	if n <= bootAt {
		return r, nil // nothing is reserved
	}
	bound, ok := parseDigits(string(text[guardSize : confirmedAt-1]))
	confirmed, ok2 := parseDigits(string(text[confirmedAt : bootAt-1]))
	if !ok || !ok2 || bound > maxStamp {
		return r, nil // not written by Orderly
	}
	r = reservation{bound: bound, confirmed: confirmed, outdated: string(text[bootAt:n]) != d.boot+"\n"}
	return r, nil
}

func (d *osDir) setBound(bound uint64) error {
	r, err := d.reservation()
	if err != nil {
		return err
	}
	if r.outdated {
		r.confirmed = 0
	}
	text := append(appendDigits(nil, bound, stampDigits), ' ')
	text = append(appendDigits(text, r.confirmed, stampDigits), ' ')
	d.disk.whole.Store(true) // before the write: a flush may fail right after it
	if err := d.writeGuard(append(append(text, d.boot...), '\n'), guardSize); err != nil {
		d.disk.whole.Store(false)
		return err
	}
	return nil
}

var errNotWhole = errors.New("an earlier write failed, and the file was not written again since")

// confirm flushes the guard file to the disk. File systems without a disk, such as tmpfs,
// return at once.
func (d *osDir) confirm(bound uint64) error {
	d.disk.flushing.Lock()
	defer d.disk.flushing.Unlock()
	err := errNotWhole
	if d.disk.whole.Load() {
		err = d.disk.write(d.guard)
	}
	if err != nil {
		d.disk.whole.Store(false)
		return &StorageError{"flushing guard file", d.guardPath, err}
	}
	if !d.disk.entry {
		if err := d.disk.write(d.dir); err != nil {
			return &StorageError{"flushing lock directory", d.path, err}
		}
		d.disk.entry = true
	}
	return d.writeGuard(appendDigits(nil, bound, stampDigits), confirmedAt)
}

func (g *guardOnDisk) write(fd int) error {
	for {
		switch err := g.flush(fd); err {
		case unix.EINTR:
		case unix.EINVAL, unix.ENOSYS: // not supported here
			return nil
		default:
			return err
		}
	}
}
