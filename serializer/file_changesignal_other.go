//go:build unix && !aix && !solaris && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package serializer

// newChangeSignal returns nil: where inotify has no more watches to give, a
// directory is polled.
func newChangeSignal(int) changeSignal { return nil }
