package serializer

import "time"

// A lock directory that is no longer at its path is retired. Another one is opened once
// all turns in the old one are over. But the old one may return to its path at any
// moment. Other processes that have not noticed continue in it, and it may be replaced
// again. So the engine gives it up only after opening the next one, and after checking
// then who is still in it.

// openNext opens the directory at the path once all turns in replaced directories are
// over.
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

// awaitOldTurns waits until all replaced directories seem to be left, or are back at
// their path.
func (f *File) awaitOldTurns() error {
	for {
		out, err := f.anyReplaced(func(d *directory) bool { return !d.retirementNow().vacant })
		if !out || err != nil {
			return err
		}
		time.Sleep(pollInterval)
	}
}

// succeed waits until the replaced directories are shut in favor of one opened in their
// place. It reports false if that one is no longer at the path.
func (f *File) succeed(sys lockDir) (there bool, err error) {
	f.setSuccessor(sys.place(), true)
	for {
		out, err := f.anyReplaced(func(*directory) bool { return true })
		switch {
		case !out && err == nil:
			return true, nil
		case err != nil, sys.check() == errReplaced:
			f.setSuccessor(fileID{}, false)
			return false, err
		}
		time.Sleep(pollInterval)
	}
}

func (f *File) setSuccessor(place fileID, opened bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.replaced {
		d.setSuccessor(place, opened)
	}
}

// anyReplaced reports whether is holds for a replaced directory. It returns an error if
// it is useless to wait for the replaced directories.
func (f *File) anyReplaced(is func(*directory) bool) (found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, &StorageError{"entering lock directory", f.path, ErrClosed}
	}
	for _, d := range f.replaced {
		if err := d.whyUnclear(); err != nil {
			return false, err
		}
		found = found || is(d)
	}
	return found, nil
}
