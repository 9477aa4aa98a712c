package serializer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A pause is an empty file in the directory. Its name says which queue is paused, and
// until when. So a pause is made atomically and never torn, and every process that lists
// the directory learns of it, even if it starts later. If a queue has several pauses, the
// one that ends last counts. To change the end, a process makes the new file before it
// removes the old ones, so the queue stays paused. Any process that finds a pause that is
// over removes it.
//
// While a queue is paused, order and rules do not show who is inside: the first ticket
// may still wait. So each process that learns of the pause makes a mark, another empty
// file, for each local ticket that is inside. The lists of all processes rely on the
// marks. Admission does not: only the owner admits a ticket.

// maxFileName is the longest file name that file systems allow, in bytes.
const maxFileName = 255

// pauseName is the name of a pause file.
func pauseName(queue string, end time.Time) string {
	return pauseFiles + string(appendDigits(nil, uint64(end.UnixMicro()), stampDigits)) + "-" + queue
}

// parsePause parses the name of a pause file.
func parsePause(name string) (queue string, end time.Time, err error) {
	rest := strings.TrimPrefix(name, pauseFiles)
	if len(rest) > stampDigits+1 && rest[stampDigits] == '-' {
		if micros, ok := parseDigits(rest[:stampDigits]); ok && micros <= uint64(Resumed.UnixMicro()) {
			end = time.UnixMicro(int64(micros)).UTC()
			if end.After(Resumed.Add(-spareEnds(Resumed))) {
				end = Resumed
			}
			return rest[stampDigits+1:], end, nil
		}
	}
	return "", end, fmt.Errorf("file name %q: expected %s<end, 20 digits, microseconds since 1970>-<queue>", name, pauseFiles)
}

// spareEnds is how much earlier the end in a pause's name may be than the end itself, if
// the name is taken by another user.
func spareEnds(end time.Time) time.Duration {
	if end.Equal(Resumed) {
		return time.Second
	}
	return time.Millisecond
}

// insideName is the name of a ticket's mark.
func insideName(stamp uint64) string {
	return insideFiles + string(appendDigits(nil, stamp, stampDigits))
}

// pauseGrace is how long a running process may take to notice a pause: it syncs ten times
// a second.
const pauseGrace = 3 * tickInterval

// Pause implements [Pauser]. It returns when this process obeys and others have had
// time to notice; the lists then show all holders. A process that was stopped in the
// meantime may let one of its waiters follow another until it notices the pause.
func (f *File) Pause(ctx context.Context, queue string, until time.Time) error {
	end, err := PauseEnd(queue, until)
	if err != nil {
		return err
	}
	if err := f.putPause(queue, end); err != nil {
		return err
	}
	select {
	case <-time.After(pauseGrace):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrOthersPause means that a queue is still paused: another user has paused it for
// all, and this user may not end that pause.
var ErrOthersPause = errors.New("another user has paused it, and only that user or root can resume it")

// Resume implements [Pauser]. The error is [ErrOthersPause] if only another user can do
// that.
func (f *File) Resume(_ context.Context, queue string) error { return f.putPause(queue, time.Time{}) }

// putPause adds a pause to the directory. If end is zero, it removes the queue's pauses.
func (f *File) putPause(queue string, end time.Time) error {
	dir, err := openOutside(f.path)
	if end.IsZero() && errors.Is(err, fs.ErrNotExist) {
		return nil // the pauses are gone with the directory
	}
	if err == nil {
		err = dir.own().putPause(queue, end)
		if err == nil && end.IsZero() {
			err = dir.own().othersPause(queue)
		}
		dir.close()
	}
	if d := f.current(); d != nil && err == nil {
		err = d.sync(false)
		d.release()
	}
	if err != nil {
		return fmt.Errorf("%s queue %q: %w", pauseVerb(end), queue, err)
	}
	return nil
}

func pauseVerb(end time.Time) string {
	if end.IsZero() {
		return "resuming"
	}
	return "pausing"
}

// PauseQueue pauses a queue of a lock directory from outside, until a moment of the
// wall clock; see [Pauser]. The pause applies to all processes that work there and to
// those that start later; none need be running. The zero time means until the queue is
// resumed. PauseQueue returns when running processes have had time to notice.
//
// In a directory that everybody may write to, each user has separate queues. Root
// pauses those of all users who work there, or, if nobody does, those of all users who
// come.
func PauseQueue(path, queue string, until time.Time) error {
	end, err := PauseEnd(queue, until)
	if err != nil {
		return err
	}
	if err := putPauseFrom(path, queue, end); err != nil {
		return err
	}
	time.Sleep(pauseGrace)
	return nil
}

// ResumeQueue ends the pause of a queue of a lock directory, from outside. The error is
// [ErrOthersPause] if only another user can do that.
func ResumeQueue(path, queue string) error { return putPauseFrom(path, queue, time.Time{}) }

func putPauseFrom(path, queue string, end time.Time) error {
	d, err := openOutside(path)
	if err == nil {
		defer d.close()
		err = d.putPauses(queue, end)
		if err == nil && end.IsZero() {
			err = d.own().othersPause(queue)
		}
	}
	if err != nil {
		return fmt.Errorf("%s queue %q in %s: %w", pauseVerb(end), queue, path, err)
	}
	return nil
}

// putPauses replaces a queue's pauses for each user for whom this process may do so. An
// error concerns one user; the others' pauses are replaced all the same.
func (d *outsideDir) putPauses(queue string, end time.Time) error {
	views, err := d.byUser()
	if err != nil {
		return err
	}
	var failed []error
	put := func(view *outsideDir, end time.Time) {
		if err := view.putPause(queue, end); err != nil {
			failed = append(failed, err)
		}
	}
	var looking []*outsideDir
	for _, view := range views {
		switch {
		case !view.mayMark():
		case view.onlyLooks(views):
			looking = append(looking, view)
		default:
			put(view, end)
		}
	}
	// A pause by root would apply to all users, and they could not end it. An earlier one
	// goes last, and only if theirs are there: the queue stays paused in between.
	if len(failed) == 0 {
		for _, view := range looking {
			put(view, time.Time{})
		}
	}
	return errors.Join(failed...)
}

// putPause adds a pause and removes the earlier ones. It removes only files that existed
// before it added its own. So if two callers pause a queue at once, neither removes the
// only remaining file. A pause that only another user can remove stays, and may last
// longer. If another one cannot be removed, the new one is taken back.
func (d *outsideDir) putPause(queue string, end time.Time) error {
	if queue == "" {
		return errNameless
	}
	if err := checkPauseName(queue); err != nil {
		return err
	}
	before, err := d.pauseFiles(queue)
	if err != nil {
		return err
	}
	name := ""
	if !end.IsZero() {
		if name, err = d.markPause(queue, end); err != nil {
			return err
		}
	}
	var failed []error
	for _, old := range before {
		if old == name || !d.mayRemove(old) {
			continue
		}
		err := d.remove(old)
		if _, end, _ := parsePause(old); end.After(time.Now()) {
			failed = append(failed, err)
		}
	}
	err = errors.Join(failed...)
	if err != nil && name != "" && !slices.Contains(before, name) {
		err = errors.Join(err, d.remove(name))
	}
	return err
}

// checkPauseName reports why a name cannot be part of a pause's file name.
func checkPauseName(queue string) error {
	if cannotName(queue) {
		return fmt.Errorf("%q cannot be part of a file name, because of a slash, a backslash or its last digits: "+
			"pause its queues by their own names, or configure another prefix", queue)
	}
	if excess := len(pauseName(queue, Resumed)) - maxFileName; excess > 0 {
		return fmt.Errorf("%q is %d bytes too long for a file name: pause its queues by their own names, or configure a prefix of at most %d bytes",
			queue, excess, len(queue)-excess)
	}
	return nil
}

// markPause makes a pause's file. In a directory of several users, another user may have
// taken its name; then an end that is a little earlier makes another name.
func (d *outsideDir) markPause(queue string, end time.Time) (name string, err error) {
	for try := range 10 {
		stamp := end
		if try > 0 {
			stamp = end.Add(-rand.N(spareEnds(end)))
		}
		name = pauseName(queue, stamp)
		if err = d.mark(name); !errors.Is(err, errTaken) {
			break
		}
	}
	return name, err
}

// othersPause returns an error if the queue is still paused by another user.
func (d *outsideDir) othersPause(queue string) error {
	names, err := d.list()
	if err != nil {
		return &StorageError{"listing lock directory", d.path, err}
	}
	for _, name := range names {
		of, end, err := parsePause(name)
		if err != nil || of != queue || !strings.HasPrefix(name, pauseFiles) || !end.After(time.Now()) || !d.pauses(name) {
			continue
		}
		_, user, err := d.whose(name)
		if errors.Is(err, errNotOurs) {
			user, err = "root", nil // since it counts
		} else if err == nil && d.mayRemove(name) {
			continue // made in the meantime
		}
		if err == nil {
			return fmt.Errorf("%w: it is paused by %s, with the file %s", ErrOthersPause, user, filepath.Join(d.path, name))
		}
	}
	return nil
}

// pauseFiles lists a queue's pause files that count for this user, and those of all
// queues whose end has passed.
func (d *outsideDir) pauseFiles(queue string) (names []string, err error) {
	all, err := d.list()
	if err != nil {
		return nil, &StorageError{"listing lock directory", d.path, err}
	}
	for _, name := range all {
		of, end, err := parsePause(name)
		if err != nil || of != queue && end.After(time.Now()) || !strings.HasPrefix(name, pauseFiles) {
			continue
		}
		_, _, err = d.whose(name)
		if errors.Is(err, errNotOurs) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, &StorageError{"looking at", filepath.Join(d.path, name), err}
		}
		names = append(names, name)
	}
	return names, nil
}

// notePause notes a file that is a pause or a mark.
func (s *sighting) notePause(name string) {
	if stamp, ok := parseDigits(strings.TrimPrefix(name, insideFiles)); ok && strings.HasPrefix(name, insideFiles) {
		s.queues.marks[stamp] = 0
	}
	queue, end, err := parsePause(name)
	if err == nil && strings.HasPrefix(name, pauseFiles) && end.After(time.Now()) && end.After(s.queues.pauses[queue]) {
		s.queues.pauses[queue] = end
	}
}

// Interface guard
var _ Pauser = (*File)(nil)
