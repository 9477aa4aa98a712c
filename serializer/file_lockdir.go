package serializer

import (
	"errors"
	"time"
)

// lockDir is what the lock-file engine asks of a directory. Everything that
// touches the disk goes through it, so tests can stop the engine between any
// two of these calls, and what differs between systems stays below it.
type lockDir interface {
	// lock takes the guard: until unlock, nobody else gives out tickets in
	// this directory, unless the guard was replaced: see check. It may block for
	// as long as another process holds the guard, so no request calls it.
	lock() error
	unlock()

	// check returns errReplaced if the guard is no longer the one at its path.
	check() error

	// here reports whether the path still leads to the same directory, be it
	// with another guard. place tells which directory it is, wherever the path leads.
	here() bool
	place() fileID

	// last reads the number of the last ticket given out; 0 if it is not
	// recorded. setLast records it. Both need the guard.
	last() (uint64, error)
	setLast(uint64) error

	// reservation reads how far numbers are reserved, and setBound reserves
	// more. Both need the guard. confirm returns when a bound is on the disk.
	reservation() (reservation, error)
	setBound(bound uint64) error
	confirm(bound uint64) error

	// create makes a ticket's lock file, and leave removes it. The ticket's
	// number is in the owner's ledger before the first and struck out before
	// the second, so a file that is missing meanwhile was removed by somebody
	// else; restore puts it back. A number is greater than all before it.
	create(name string, stamp uint64, k ownerKind) error
	restore(name string, k ownerKind) error
	leave(name string, stamp uint64) error

	// remove removes any other file. One that is not there is no error. The error is
	// errNotFile if it is a directory.
	remove(name string) error

	// restoreOwner puts the name of an owner file of ours back.
	restoreOwner(name string) error

	// refresh lets the files that stay look new to programs that clean up.
	refresh()

	// changes reports what happened in the directory since the last call, in
	// the order it happened. Where events were lost, it reports listing and then
	// every file there is, as appeared; before listing, it may report part of what
	// happened. The name is only valid during the call of fn.
	changes(fn func(kind change, name []byte)) error

	// wait returns when something may have changed, at the latest after d.
	// interrupt ends the wait, or the next one if there is none, unless that polls.
	// notifies reports whether it takes no polling.
	wait(d time.Duration)
	interrupt()
	notifies() bool

	// identify tells which file a name is: tickets of the same owner are the
	// same file. The error is fs.ErrNotExist, or errNotOurs if its owner is a
	// user whose files do not count here.
	identify(name string) (fileID, error)

	// age tells for how long a file has been as it is, by the clock of the file
	// system, and never more than for how long the machine runs; 0 is not known.
	age(name string) time.Duration

	// owns reports whether a file is one of our own owner files.
	owns(fileID) bool

	// checksUsers reports whether files of some users do not count here.
	checksUsers() bool

	// probe opens a file to find out whether its owner lives. The error is
	// errUnowned if it is no owner's file.
	probe(name string) (ownerProbe, error)

	// mark makes an empty file.
	mark(name string) error

	// disown gives up the owner files. close frees the rest.
	disown()
	close()
}

// ownerProbe is another process's owner file, held open.
type ownerProbe interface {
	// id tells which file it is.
	id() fileID
	// owner is what it says of its process.
	owner() Owner
	// dead reports whether the process has ended or given the file up.
	dead() (bool, error)
	// keepsLedger reports whether the file says which tickets of its process are
	// out: one file of each process does. standing tells that of one ticket, and
	// outstanding lists them; ok is false if that is not clear at the moment.
	keepsLedger() bool
	standing(stamp uint64) standing
	outstanding() (stamps []uint64, ok bool)
	close()
}

// fileID is the identity of a file within one directory.
type fileID struct{ dev, ino uint64 }

// change is what happened to a file.
type change uint8

const (
	appeared change = iota
	vanished
	closed  // by a process that had it open for writing: perhaps an owner that ended
	listing // no file: what follows is all there is, and may take its time
)

// Files of ours that are no tickets. None of these names can be read as one.
const (
	ownFiles    = ".orderly-"
	guardFile   = ownFiles + "guard"
	ownerFiles  = ownFiles + "owner-"
	evictMarker = ownFiles + "evict-" // + the token, 20 digits
	trialFiles  = ownFiles + "trial-"
	pauseFiles  = ownFiles + "pause-"  // + the end, 20 digits, "-" and the queue's or group's name
	insideFiles = ownFiles + "inside-" // + the token, 20 digits
)

var (
	errReplaced = errors.New("the lock directory or its guard file was replaced")
	errNotOurs  = errors.New("the file belongs to a user whose files do not count in a directory that everybody may write to")
	errNotFile  = errors.New("it is a directory")
	errUnowned  = errors.New("the file is not one of an owner's tickets")
)
