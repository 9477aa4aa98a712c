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

func (d *osDir) goDeaf() { d.polls.goDeaf() }
