//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// nested is the arrival of a caller that has a turn already.
func nested(queue string, held serializer.Turn) serializer.Arrival {
	a := arrival(queue)
	a.Holds = []serializer.Turn{held}
	return a
}

// Bug: a caller that was inside one queue of a directory that was replaced, and came to another
// one, waited for itself, and everybody for it. Whatever happens to the directory, it gets its
// turn in the old one, or is refused at once. Nobody enters in the new one before.
func TestNestedInReplacedDirectory(t *testing.T) {
	t.Parallel()
	moveAway := func(dir string) error { return os.Rename(dir, dir+".old") }
	makeAgain := func(dir string) error { return os.Mkdir(dir, 0o700) }
	putBack := func(dir string) error { return os.Rename(dir+".old", dir) }
	for _, test := range []struct {
		name    string
		happens []func(dir string) error
		refused bool   // no file can be made there any more
		others  string // the queue of newcomers; they do not wait for a directory that stays
	}{
		{"replaced", []func(string) error{moveAway, makeAgain}, false, "inner_"},
		{"moved away", []func(string) error{moveAway}, false, "inner_"},
		{"emptied and replaced", []func(string) error{removeFiles, moveAway, makeAgain}, false, "inner_"},
		{"removed", []func(string) error{os.RemoveAll}, true, "inner_"},
		{"removed and made again", []func(string) error{os.RemoveAll, makeAgain}, true, "inner_"},
		{"emptied", []func(string) error{removeFiles}, false, "newcomers_"},
		{"moved away and back", []func(string) error{moveAway, putBack}, false, "newcomers_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "locks")
			one, two := open(t, dir), open(t, dir)
			outer, theirs := enter(t, one, "outer_"), enter(t, two, "theirs_")
			before := joined(t, one, "outer_")
			for _, happen := range test.happens { // again, if a file was put back meanwhile
				wait.Eventually(t, "it happens to the directory", func() error { return happen(dir) })
			}
			const newcomers = 200 // more than are appended at once
			served := make(chan serializer.Turn, newcomers)
			for i := range newcomers {
				go func() {
					if turn, err := []node{one, two}[i%2].Enter(t.Context(), arrival(test.others)); err == nil {
						turn.Leave()
						served <- turn
					}
				}()
			}
			if test.refused {
				wantRefusal(t, startedFor(one, nested("inner_", outer)), errRemoved)
				wantRefusal(t, startedFor(two, nested("inner_", theirs)), errRemoved)
			} else {
				inner := get(t, startedFor(one, nested("inner_", outer)))
				next := startedFor(two, nested("inner_", theirs))
				stillWaits(t, next, "another process's caller is inside")
				if test.others == "inner_" && len(served) > 0 {
					t.Errorf("%d have entered beside it", len(served))
				}
				get(t, startedFor(one, nested("innermost_", inner))).Leave()
				inner.Leave()
				get(t, next).Leave()
			}
			outer.Leave()
			theirs.Leave()
			get(t, before).Leave()
			wait.Until(t, "all newcomers are served", func() bool { return len(served) == newcomers })
		})
	}
}

func removeFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// An arrival that cannot have its ticket now ends as any other does: by its timeout, and when
// the engine closes. A turn that has ended gives no ticket in the old directory.
func TestPostponedArrivals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := open(t, dir), open(t, dir)
	holder := enter(t, one, "a_")
	left := enter(t, two, "b_")
	left.Leave()
	movedAway(t, dir)
	impatient := arrival("c_")
	impatient.Timeout = 3 * tickInterval
	late, waiting, again := startedFor(two, impatient), started(two, "c_"), startedFor(two, nested("c_", left))
	stillWaits(t, waiting, "somebody is inside in the old directory")
	stillWaits(t, again, "it is inside nothing by now")
	if r := <-late; !errors.Is(r.err, serializer.ErrTimeout) {
		t.Errorf("got error %v", r.err)
	}
	must(t, two.Close())
	wantRefusal(t, waiting, serializer.ErrClosed)
	wantRefusal(t, again, serializer.ErrClosed)
	holder.Leave()
}
