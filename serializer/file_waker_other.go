//go:build unix && !linux && !aix && !solaris

package serializer

import "time"

// wakesOthers is the word of a new ledger that says that its owner wakes nobody.
const wakesOthers = 0

// waker is never used on this system: the directory is polled.
type waker struct{}

func newWaker(int, string) *waker { return nil }

func (*waker) listen(*ownerFile) bool { return false }
func (*waker) wait(time.Duration)     {}
func (*waker) interrupt()             {}
func (*waker) close()                 {}

type peers struct{}

func (*peers) add(int)     {}
func (*peers) remove(int)  {}
func (*peers) wake(uint64) {}
