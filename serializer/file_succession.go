package serializer

import "time"

// A lock directory that is no longer at its path is retired, and another one is opened
// once all turns in it are over. It may come back at any moment, so that others, who have
// not noticed, go on in it, and be replaced again. So the engine lets go of it only when
// it has opened the next one and has found out after that who is still in the old one.

// openNext opens the directory that is at the path, as soon as all turns in replaced ones
// are over.
func (f *File) openNext() (lockDir, error) {
	for {
		if err := f.awaitOldTurns(); err != nil {
			return nil, err
		}
		sys, err := f.open(f.path, f.clock)
		if err != nil {
			return nil, err
		}
		there, err := f.succeed(sys)
		if there {
			return sys, nil
		}
		sys.close()
		if err != nil {
			return nil, err
		}
	}
}

// awaitOldTurns waits until all replaced directories seem to be left, or are back.
func (f *File) awaitOldTurns() error {
	for {
		out, err := f.anyReplaced(func(d *directory) bool { return !d.isParted() })
		if !out || err != nil {
			return err
		}
		time.Sleep(pollInterval)
	}
}

// succeed waits until the replaced directories are shut for one that was opened in
// their place. It reports false if this is not the one there any more.
func (f *File) succeed(sys lockDir) (there bool, err error) {
	f.setSucceeded(sys.place(), true)
	for {
		out, err := f.anyReplaced(func(*directory) bool { return true })
		switch {
		case !out && err == nil:
			return true, nil
		case err != nil, sys.check() == errReplaced:
			f.setSucceeded(fileID{}, false)
			return false, err
		}
		time.Sleep(pollInterval)
	}
}

func (f *File) setSucceeded(by fileID, succeeded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.replaced {
		d.setSucceeded(by, succeeded)
	}
}

// anyReplaced reports whether something is so of a replaced directory. The error says
// why a wait for that to end is in vain.
func (f *File) anyReplaced(is func(*directory) bool) (found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, &StorageError{"entering lock directory", f.path, ErrClosed}
	}
	for _, d := range f.replaced {
		if err := d.inTheWay(); err != nil {
			return false, err
		}
		found = found || is(d)
	}
	return found, nil
}
