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
	if d.notes != nil {
		d.notes.close()
		d.notes = nil
	}
	d.polls.goDeaf()
}
