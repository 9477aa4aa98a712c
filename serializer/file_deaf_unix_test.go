//go:build unix && !aix && !solaris

package serializer

import "time"

// openDeaf opens a directory that must be polled.
func openDeaf(path string, clock func() time.Time) (lockDir, error) {
	d, err := openLockDir(path, clock)
	if err == nil {
		d.(*osDir).goDeaf()
	}
	return d, err
}

func (d *osDir) goDeaf() {
	if d.waker != nil {
		d.waker.close()
		d.waker = nil
	}
	if d.notes != nil {
		d.notes.close()
		d.notes = nil
	}
	d.polls.goDeaf()
}

// olderDir is a directory as versions work in it that know nothing of being woken.
type olderDir struct{ *osDir }

func openOlder(path string, clock func() time.Time) (lockDir, error) {
	d, err := openLockDir(path, clock)
	if err != nil {
		return nil, err
	}
	return olderDir{d.(*osDir)}, nil
}

func (olderDir) askFor([]uint64) bool { return false }

func (d olderDir) create(name string, stamp uint64, k ownerKind) error {
	err := d.osDir.create(name, stamp, k)
	if err == nil {
		d.ledgerFile.ledger.set(wakesWord, 0)
	}
	return err
}

func (d olderDir) leave(name string, stamp uint64) error {
	d.strike(stamp)
	return d.remove(name)
}
