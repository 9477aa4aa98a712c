//go:build unix && !linux && !aix && !solaris

package dir

import "time"

// Watch stands for the changes in a directory, which this system does not report.
type Watch struct{}

// Watch makes a watch of the directory.
func (d *Dir) Watch() *Watch { return new(Watch) }

// Read reports nothing, but that the directory must be listed.
func (*Watch) Read(func(c Change, name []byte)) (lost bool, err error) { return true, nil }

// Distrust does nothing.
func (*Watch) Distrust() {}

// Wait returns when the directory should be listed again, at the latest after timeout.
func (*Watch) Wait(timeout time.Duration) { time.Sleep(min(timeout, pollInterval)) }

// Close does nothing.
func (*Watch) Close() {}
