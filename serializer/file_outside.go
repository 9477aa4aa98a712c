package serializer

import (
	"errors"
	"io/fs"
)

// An engine works in its directory only while it has arrivals. At other times, it reads
// the directory from outside, because other processes may have tickets there.

// surveyOutside calls fn with the directory as this user sees it. If the directory is
// gone, fn is not called.
func (f *File) surveyOutside(fn func(*outsideDir, *sighting) error) error {
	d, err := openOutside(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	view := d.own()
	s, err := survey(view)
	if err != nil {
		return err
	}
	return fn(view, s)
}

// queuesOutside lists the queues of other processes.
func (f *File) queuesOutside() (states []QueueState, err error) {
	err = f.surveyOutside(func(d *outsideDir, s *sighting) error {
		states = s.states(d.path)
		return nil
	})
	return states, err
}

// evictOutside takes out a ticket of another process.
func (f *File) evictOutside(queue string, token uint64) error {
	found := false
	err := f.surveyOutside(func(d *outsideDir, s *sighting) error {
		t := s.queues.byName[queue].find(token)
		if found = t != nil; !found {
			return nil
		}
		return evictFile(d, t.Ticket)
	})
	if err == nil && !found {
		return ErrNoTicket
	}
	return err
}
