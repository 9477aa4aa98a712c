//go:build mutants && unix && !aix && !solaris

package serializer

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Mutants are deliberate defects of the lock-file engine, for the harness in ./torture,
// which must detect each of them. They exist only in programs built with -tags mutants.
var Mutants = map[string]func(lockDir) lockDir{
	"noguard":  func(d lockDir) lockDir { return &noGuard{d} },
	"nocheck":  func(d lockDir) lockDir { return &noCheck{d} },
	"nolast":   func(d lockDir) lockDir { return &noLast{d} },
	"noledger": func(d lockDir) lockDir { return &noLedger{d} },
	"nogroup":  noGroup,
	"nopause":  func(d lockDir) lockDir { return &noPause{d, appeared} },
	"noresume": func(d lockDir) lockDir { return &noPause{d, vanished} },
}

// OpenMutant opens an engine with one of the [Mutants].
func OpenMutant(name, path string, o FileOptions) (*File, error) {
	mutate := Mutants[name]
	if mutate == nil {
		return nil, fmt.Errorf("no mutant %q", name)
	}
	f, err := OpenFile(path, o)
	if err != nil {
		return nil, err
	}
	f.open = func(path string, clock func() time.Time) (lockDir, error) {
		d, err := openLockDir(path, clock)
		if err != nil {
			return nil, err
		}
		return mutate(d), nil
	}
	return f, nil
}

// noGuard issues tickets without the guard.
type noGuard struct{ lockDir }

func (*noGuard) lock() error { return nil }
func (*noGuard) unlock()     {}

// noGroup makes files that only their user can open, whatever the mode of the directory.
func noGroup(d lockDir) lockDir {
	files := d.(*osDir)
	files.fileMode.Store(0o600)
	_ = unix.Fchmod(files.guard, files.fileMode.Load())
	return d
}

// noCheck never checks whether the guard is still at its path.
type noCheck struct{ lockDir }

func (*noCheck) check() error { return nil }

// noLast does not record the last number.
type noLast struct{ lockDir }

func (*noLast) last() (uint64, error) { return 0, nil }
func (*noLast) setLast(uint64) error  { return nil }

// noLedger treats every lock file that disappears as a leave.
type noLedger struct{ lockDir }

func (d *noLedger) probe(name string) (ownerProbe, error) {
	probe, err := d.lockDir.probe(name)
	if err != nil {
		return nil, err
	}
	return &illiterate{probe}, nil
}

type illiterate struct{ ownerProbe }

func (*illiterate) standing(uint64) standing      { return isAbsent }
func (*illiterate) outstanding() ([]uint64, bool) { return nil, true }

// noPause does not notice that pauses appear, or that they vanish.
type noPause struct {
	lockDir
	deaf change
}

func (d *noPause) changes(fn func(kind change, name []byte)) error {
	return d.lockDir.changes(func(kind change, name []byte) {
		if kind != d.deaf || !bytes.HasPrefix(name, []byte(pauseFiles)) {
			fn(kind, name)
		}
	})
}
