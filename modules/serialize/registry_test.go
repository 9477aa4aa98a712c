package serialize

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// A configuration that gives a queue another engine is refused while a request of the old
// one is in it, and accepted once the queue is paused and nobody is inside.
func TestChangeOfEngineIsRefusedWhileInUse(t *testing.T) {
	for _, c := range []struct {
		name, queue, prefix string
		refused             bool
	}{
		{"same queue", "a_", "a_", true},
		{"another queue", "a_", "b_", false},
		{"one of a prefix with placeholders", "user_anna_", "user_{http.auth.user.id}_", true},
		{"one whose prefix begins like a timestamp", "p00001b_", "p00001{http.request.host}_", true},
		{"one with a long name", serializer.QueueName(strings.Repeat("long-", 50)), strings.Repeat("long-", 20) + "{http.request.host}", true},
		{"none of a prefix with placeholders", "a_", "user_{http.auth.user.id}_", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			before := opened(t, engines.File{}, dir)
			turn := entered(t, before, c.queue)
			waiting := make(chan error, 1)
			waiter := before.Join(serializer.Arrival{Queue: c.queue}, func(_ serializer.Turn, err error) { waiting <- err })
			after := func() error {
				return provision(t, &Handler{Path: dir, Prefix: c.prefix, EngineRaw: []byte(`{"engine": "memory"}`)})
			}
			err := after()
			if refused := err != nil && strings.Contains(err.Error(), "pause the queue, wait until nobody is inside, and load"); refused != c.refused {
				t.Fatalf("error %v; expected a refusal: %v", err, c.refused)
			}
			must(t, before.Pause(t.Context(), c.queue, time.Time{}))
			turn.Leave()
			wait.Until(t, "nobody inside", func() bool { inside, _ := before.Count(c.queue); return inside == 0 })
			must(t, after())
			waiter.GiveUp(serializer.ErrTimeout)
			<-waiting
		})
	}
}

// Bug: while a request of one queue looked for rivals, those of the engine's other queues
// entered without a look, beside requests of the old engine.
func TestRivalsAreSeenByAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	turn := entered(t, opened(t, engines.File{}, dir), "changed_")
	defer turn.Leave()
	young := opened(t, engines.Memory{}, dir)
	var group sync.WaitGroup
	for i := range 3 {
		queue := []string{"changed_", "other_", "third_"}[i]
		group.Go(func() {
			for range 2000 {
				turn, err := young.Enter(t.Context(), serializer.Arrival{Queue: queue})
				if err == nil {
					err = young.CheckRivals(queue, turn)
				}
				if isIn := err == nil; isIn != (i > 0) || !isIn && refusalOf(err).Reason != serializer.ReasonStorage {
					t.Errorf("%s: %v", queue, err)
					return
				} else if isIn {
					turn.Leave()
				}
			}
		})
	}
	group.Wait()
}

// Bug: if a deployment moved a symbolic link, and a reload followed, the new configuration
// let a request in beside the holder of the old one.
func TestMovedLink(t *testing.T) {
	for _, module := range []engines.Module{engines.File{}, engines.Memory{}} {
		root := t.TempDir()
		link := filepath.Join(root, "current")
		deploy := func(release string) {
			err := errors.Join(os.MkdirAll(filepath.Join(root, release), 0o750),
				os.Symlink(release, link+".new"), os.Rename(link+".new", link))
			must(t, err)
		}
		deploy("release-1")
		before := opened(t, module, filepath.Join(link, "locks"))
		turn := entered(t, before, "a_")
		deploy("release-2")
		if after := opened(t, module, filepath.Join(link, "locks")); after.Shared != before.Shared {
			t.Errorf("%T: the new configuration does not know who is inside", module)
		}
		turn.Leave()
	}
}

// Bug: a missing directory below a link had two names, one before it was made
// and one after. So nested blocks of one queue waited for themselves. So did any directory
// with two names that were opened at once, as by late requests: in memory, two were inside.
func TestMissingDirectoryBelowLink(t *testing.T) {
	root := t.TempDir()
	must(t, errors.Join(os.Mkdir(filepath.Join(root, "real"), 0o750), os.Symlink("real", filepath.Join(root, "link"))))
	for _, module := range []engines.Module{engines.Memory{}, engines.File{}} { // only files make it
		first := opened(t, module, filepath.Join(root, "link", "a", "b"))
		second := opened(t, module, filepath.Join(root, "link", "a", "b"))
		third := opened(t, module, filepath.Join(root, "real", "a", "b"))
		if first.Shared != second.Shared || first.Shared != third.Shared {
			t.Errorf("%T: the engines are %s, %s and %s", module, first.Key, second.Key, third.Key)
		}
	}
	for i := range 100 {
		name, other := strings.Repeat("c", i+1), make(chan *engines.Ref)
		go func() { other <- opened(t, engines.Memory{}, filepath.Join(root, "link", name)) }()
		if e := opened(t, engines.Memory{}, filepath.Join(root, "real", name)); (<-other).Shared != e.Shared {
			t.Fatalf("number %d: two engines were opened at once", i)
		}
	}
}
