package serializer

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// unmakingDir cannot make the files of tickets while fails is set.
type unmakingDir struct {
	lockDir
	fails *atomic.Bool
}

func (d unmakingDir) create(name string, stamp uint64, k ownerKind) error {
	if d.fails.Load() {
		return syscall.ENOSPC
	}
	return d.lockDir.create(name, stamp, k)
}

// Bug: a process recorded a number, and could not make its file. Another process had seen
// no file since its own last ticket, so it issued the same number.
func TestNumberWithoutFile(t *testing.T) {
	dir, fails := t.TempDir(), new(atomic.Bool)
	ahead := time.Now().Add(time.Hour)
	o := FileOptions{Clock: func() time.Time { return ahead }} // numbers follow each other
	one := newFile(dir, o, func(path string, clock func() time.Time) (lockDir, error) {
		d, err := openLockDir(path, clock)
		return unmakingDir{d, fails}, err
	})
	defer one.Close()
	other := newFile(dir, o, openLockDir)
	defer other.Close()

	for range 2 {
		enter(t, one, arrival("a_")).Leave()
		enter(t, other, arrival("a_")).Leave()
	}
	fails.Store(true)
	_, err := one.Enter(t.Context(), arrival("a_"))
	var refused *Refused
	if !errors.As(err, &refused) || refused.Token == 0 {
		t.Fatalf("expected a refusal with a number: %v", err)
	}
	turn := enter(t, other, arrival("a_"))
	defer turn.Leave()
	if turn.Token() <= refused.Token {
		t.Errorf("number %d was issued after %d", turn.Token(), refused.Token)
	}
}
