package serializer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// pausedIn returns the state of a queue as it is on the disk.
func pausedIn(t *testing.T, dir, queue string) QueueState {
	t.Helper()
	states, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range states {
		if q.Prefix == queue {
			return q
		}
	}
	return QueueState{}
}

// A pause also applies to a process that starts later, even if no process was running, or
// the one that made it has ended.
func TestPauseBeforeStart(t *testing.T) {
	dir := t.TempDir()
	first := openAt(t, dir, 0)
	if err := first.Pause(t.Context(), "a_", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := PauseQueue(dir, "{user}_", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f := openAt(t, dir, 0)
	if states, err := f.Queues(t.Context()); err != nil || len(states) != 2 || states[0].PausedUntil == nil || states[1].PausedUntil == nil {
		t.Errorf("before any arrival, the list is %+v, error %v; expected two paused queues", states, err)
	}
	for _, a := range []Arrival{{Queue: "a_"}, {Queue: "ann_", Group: "{user}_"}} {
		a.Timeout = 50 * time.Millisecond
		if _, err := f.Enter(t.Context(), a); ReasonOf(err) != ReasonTimeout {
			t.Errorf("%+v: error %v; expected a timeout, for the queue is paused", a, err)
		}
	}
	for _, queue := range []string{"a_", "{user}_"} {
		if err := ResumeQueue(dir, queue); err != nil {
			t.Fatal(err)
		}
	}
	turn, err := f.Enter(t.Context(), Arrival{Queue: "a_"})
	if err != nil {
		t.Fatal(err)
	}
	turn.Leave()
}

// A pause from outside takes effect within moments, and the disk tells who is
// inside. This also applies to a queue of a paused group.
func TestPauseFromOutside(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir, 0)
	a := Arrival{Queue: "ann_", Group: "{user}_"}
	holder, err := f.Enter(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan Turn, 1)
	go func() {
		turn, err := f.Enter(t.Context(), a)
		if err != nil {
			t.Error(err)
		}
		entered <- turn
	}()
	wait.Until(t, "the second waits", func() bool { return pausedIn(t, dir, "ann_").Waiting == 1 })
	if err := PauseQueue(dir, "{user}_", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if q := pausedIn(t, dir, "ann_"); q.PausedUntil == nil || !q.PausedUntil.Equal(Resumed) || q.Inside != 1 || q.Waiting != 1 {
		t.Errorf("paused until %v, %d inside, %d waiting; expected until it is resumed, 1 and 1", q.PausedUntil, q.Inside, q.Waiting)
	}
	holder.Leave()
	if q := pausedIn(t, dir, "ann_"); q.Inside != 0 || q.Waiting != 1 {
		t.Errorf("%d inside, %d waiting after the holder has left; expected 0 and 1", q.Inside, q.Waiting)
	}
	select {
	case <-entered:
		t.Error("somebody entered a paused queue")
	default:
	}
	if err := ResumeQueue(dir, "{user}_"); err != nil {
		t.Fatal(err)
	}
	(<-entered).Leave()
}

// A pause that ended while no process was running pauses nobody, and is removed.
func TestPauseEndedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, pauseName("a_", time.Now().Add(-time.Second)))
	mark := filepath.Join(dir, insideName(minStamp)) // of a holder that died
	for _, path := range []string{name, mark} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := openAt(t, dir, 0)
	turn, err := f.Enter(t.Context(), Arrival{Queue: "a_", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	turn.Leave()
	for _, path := range []string{name, mark} {
		wait.Until(t, path+" is gone", func() bool {
			_, err := os.Stat(path)
			return os.IsNotExist(err)
		})
	}
}

// A file that only looks like a pause pauses nobody, because nobody could say when it
// ends.
func TestUnreadablePause(t *testing.T) {
	for _, name := range []string{"", "a_", "123-a_", "99999999999999999999-a_", "00001609693865378515-"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, pauseFiles+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f := openAt(t, dir, 0)
		turn, err := f.Enter(t.Context(), Arrival{Queue: "a_", Timeout: patience})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		turn.Leave()
	}
}

func TestPauseNames(t *testing.T) {
	for _, queue := range []string{"a", "-", "{user}_", "a_00001609693865378515", QueueName("/var/日本")} {
		end := time.Now().UTC().Truncate(time.Microsecond)
		got, until, err := parsePause(pauseName(queue, end))
		if err != nil || got != queue || !until.Equal(end) {
			t.Errorf("%q until %s became %q until %s, error %v", queue, end, got, until, err)
		}
	}
	if err := PauseQueue(t.TempDir(), "a/b", time.Time{}); err == nil {
		t.Error("a queue whose name holds a slash was paused")
	}
}

// A process without a ticket in a queue of a paused group knows that the queue is paused
// and who is inside. So does everybody who looks from outside. The names alone do not
// tell: values are escaped, and another queue's name may look like one of the group.
func TestPausedGroupOfOthers(t *testing.T) {
	for _, group := range []string{"user_{id}_", "50%_{id}_", "{id}"} {
		t.Run(group, func(t *testing.T) {
			dir := t.TempDir()
			owner, other := openAt(t, dir, 0), openAt(t, dir, 0)
			a := Arrival{Queue: QueueName(strings.ReplaceAll(group, "{id}", "ann")), Group: group}
			holder := get(t, started(owner, a))
			waiter := started(owner, a)
			defer get(t, started(other, Arrival{Queue: "other_"})).Leave() // so that it works in the directory
			plain := get(t, started(owner, Arrival{Queue: "plain_"}))
			if err := other.Pause(t.Context(), group, time.Time{}); err != nil {
				t.Fatal(err)
			}
			expect := func(queue string, paused bool, inside, waiting int) {
				t.Helper()
				wantQueue(t, other, dir, queue, paused, inside, waiting)
			}
			expect(a.Queue, true, 1, 1)
			expect("plain_", false, 1, 0)
			holder.Leave()
			expect(a.Queue, true, 0, 1)
			late := started(owner, Arrival{Queue: QueueName(strings.ReplaceAll(group, "{id}", "ben")), Group: group})
			wait.Until(t, "a ticket of another queue of the group is there", func() bool {
				return pausedIn(t, dir, QueueName(strings.ReplaceAll(group, "{id}", "ben"))).Waiting == 1
			})
			expect(QueueName(strings.ReplaceAll(group, "{id}", "ben")), true, 0, 1)
			plain.Leave()
			if err := ResumeQueue(dir, group); err != nil {
				t.Fatal(err)
			}
			get(t, waiter).Leave()
			get(t, late).Leave()
		})
	}
}

// wantQueue compares a queue as another process sees it, and as it is seen from outside.
func wantQueue(t *testing.T, other *File, dir, queue string, paused bool, inside, waiting int) {
	t.Helper()
	for who, list := range map[string]func() ([]QueueState, error){
		"the other process": func() ([]QueueState, error) { return other.Queues(t.Context()) },
		"from outside":      func() ([]QueueState, error) { return Inspect(dir) },
	} {
		states, err := list()
		i := slices.IndexFunc(states, func(q QueueState) bool { return q.Prefix == queue })
		if err != nil || i < 0 {
			t.Fatalf("%s: %q is not among %+v, error %v", who, queue, states, err)
		}
		if q := states[i]; (q.PausedUntil != nil) != paused || q.Inside != inside || q.Waiting != waiting {
			t.Errorf("%s: %q is %+v; expected paused %t, %d inside, %d waiting", who, queue, q, paused, inside, waiting)
		}
	}
}

// A queue without a name cannot be paused: nobody could read the name of the file.
func TestPauseWithoutName(t *testing.T) {
	dir := t.TempDir()
	f, m := openAt(t, dir, 0), NewMemory(MemoryOptions{})
	for _, err := range []error{
		PauseQueue(dir, "", time.Time{}), ResumeQueue(dir, ""),
		f.Pause(t.Context(), "", time.Time{}), m.Pause(t.Context(), "", time.Time{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "without a name") {
			t.Errorf("error %v; expected that there is no name", err)
		}
	}
	if names, _ := filepath.Glob(filepath.Join(dir, pauseFiles+"*")); len(names) > 0 {
		t.Errorf("files %q are there", names)
	}
}

func TestFitsGroup(t *testing.T) {
	long := QueueName("a_" + strings.Repeat("x", 200) + "_")
	for _, c := range []struct {
		queue, group string
		fits         bool
	}{
		{"ann_", "{user}_", true},
		{"ann", "{user}_", false},
		{"a_ann_b", "a_{user}_{n}", true},
		{"b_ann_b", "a_{user}_{n}", false},
		{"50%25_ann_", "50%_{user}_", true},
		{"a_", "a_", true},
		{"a_b", "a_", false},
		{long, "a_{user}_", true},
		{long, "b_{user}_", false},
		{long, "a_", false},
	} {
		if got := FitsGroup(c.queue, c.group); got != c.fits {
			t.Errorf("%q fits group %q: %t", c.queue, c.group, got)
		}
	}
}

// Bug: a name that is too long for a pause was refused with advice to look up an
// identifier in Go.
func TestPauseOfLongPrefix(t *testing.T) {
	dir := t.TempDir()
	longest := strings.Repeat("x", 213) + "{user}"
	if err := PauseQueue(dir, longest, time.Time{}); err != nil {
		t.Errorf("the longest name: %v", err)
	}
	for name, want := range map[string]string{"x" + longest: "at most 219 bytes", "a/{user}": "a slash"} {
		if err := PauseQueue(dir, name, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; expected %q", name, err, want)
		}
	}
}

// Bug: an idle process failed to resume a queue if its directory had been removed,
// although nothing is paused then.
func TestResumeWithoutDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queues")
	f := openAt(t, dir, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Resume(t.Context(), "a_"); err != nil {
		t.Error(err)
	}
	if err := ResumeQueue(dir, "a_"); err == nil {
		t.Error("resuming in a directory that is not there is no error; the path may be misspelt")
	}
}
