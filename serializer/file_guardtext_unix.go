//go:build unix && !aix && !solaris

package serializer

import (
	"io"

	"golang.org/x/sys/unix"
)

// The guard file holds the last ticket's number, 20 digits and a line feed. A second
// line says how far numbers are reserved: the bound; the bound that is known to be on
// the disk; and the ID of the machine's start in which this was written.
const (
	guardSize   = stampDigits + 1
	confirmedAt = guardSize + stampDigits + 1
	bootAt      = confirmedAt + stampDigits + 1
)

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

// reservation says that everything is reserved where the system does not tell of a
// start of the machine.
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
		return r, nil // nonsense
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
	return d.writeGuard(append(append(text, d.boot...), '\n'), guardSize)
}

// confirm waits for the disk. File systems without one, such as tmpfs, have nothing to
// wait for.
func (d *osDir) confirm(bound uint64) error {
	if err := syncFile(d.guard); err != nil {
		return &StorageError{"writing to the disk guard file", d.guardPath, err}
	}
	var err error
	d.synced.Do(func() { err = syncFile(d.dir) })
	if err != nil {
		return &StorageError{"writing to the disk lock directory", d.path, err}
	}
	return d.writeGuard(appendDigits(nil, bound, stampDigits), confirmedAt)
}

func syncFile(fd int) error {
	for {
		switch err := syncData(fd); err {
		case unix.EINTR:
		case unix.EINVAL, unix.ENOSYS: // it cannot be had here
			return nil
		default:
			return err
		}
	}
}
