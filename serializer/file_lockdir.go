package serializer

import (
	"errors"
	"time"
)

// lockDir is what the lock-file engine needs from a directory. Everything that touches
// the disk goes through it. So tests can stop the engine between any two calls, and
// differences between systems stay below it.
type lockDir interface {
	// lock takes the guard: until unlock, nobody else issues tickets in this directory,
	// unless the guard was replaced (see check). It blocks while another process holds
	// the guard, so no request calls it.
	lock() error
	unlock()

	// check returns errReplaced if the guard is no longer the one at its path.
	check() error

	// here reports whether the path still leads to the same directory, even if the guard
	// is another one. place identifies the directory, wherever the path leads.
	here() bool
	place() fileID

	// last reads the number of the last ticket issued; it is 0 if none is recorded.
	// setLast records it. Both need the guard.
	last() (uint64, error)
	setLast(uint64) error

	// announce makes other processes read the last number again. They do so by themselves
	// when a lock file appears, but a number may have none.
	announce()

	// reservation reads how far numbers are reserved, and setBound reserves more. Both
	// need the guard. confirm returns when a bound is on the disk.
	reservation() (reservation, error)
	setBound(bound uint64) error
	confirm(bound uint64) error

	// create writes a ticket's number to the owner's ledger, and then makes its lock
	// file. leave strikes the number out, and then removes the file. So if the file is
	// missing in between, somebody else has removed it; restore puts it back. Each number
	// is greater than all before it.
	create(name string, stamp uint64, k ownerKind) error
	restore(name string, k ownerKind) error
	leave(name string, stamp uint64) error

	// remove removes any other file. A missing file is not an error. The error is
	// errNotFile if it is a directory.
	remove(name string) error

	// restoreOwner puts the name of a local owner file back.
	restoreOwner(name string) error

	// refresh touches the permanent files, so that programs that clean up old files leave
	// them alone.
	refresh()

	// widen gives the permanent files the permissions that the directory's mode allows.
	widen()

	// changes reports what has happened in the directory since the last call, in order.
	// If events were lost, it reports listing, and then appeared for every file that
	// exists. Before listing, it may report some of the events. The name is valid only
	// during the call of fn.
	changes(fn func(kind change, name []byte)) error

	// wait returns when something may have changed, or after d. interrupt ends the
	// current wait, or the next one if there is none; it has no effect on polling without
	// a signal. notifies reports whether changes are known without polling.
	wait(d time.Duration)
	interrupt()
	notifies() bool

	// identify returns the identity of a file; tickets of the same owner are the same
	// file. The error is fs.ErrNotExist, or errNotOurs if the file belongs to a user
	// whose files do not count here.
	identify(name string) (fileID, error)

	// age returns how long a file has been as it is, by the clock of the file
	// system. It is never longer than the machine has been running; 0 means
	// unknown.
	age(name string) time.Duration

	// owns reports whether a file is a local owner file.
	owns(fileID) bool

	// checksUsers reports whether the files of some users do not count here.
	checksUsers() bool

	// probe opens a file to find out whether its owner is alive. The error is errUnowned
	// if the file is not an owner file.
	probe(name string) (ownerProbe, error)

	// mark makes an empty file.
	mark(name string) error

	// disown gives up the owner files. close frees the rest.
	disown()
	close()
}

// ownerProbe is another process's owner file, held open.
type ownerProbe interface {
	// id identifies the file.
	id() fileID
	// owner is what the file says about its process.
	owner() Owner
	// dead reports whether the process has ended or has given up the file.
	dead() (bool, error)
	// keepsLedger reports whether the file lists which tickets of its process are out;
	// one file of each process does. standing returns that for one ticket, and
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
	closed  // by a process that had it open for writing: perhaps an owner has ended
	listing // not a file: all existing files follow, which may take a while
)

// Orderly's files that are not tickets. ParseTicket accepts none of these names.
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
	errTaken    = errors.New("the name is taken by something that another user or program made; remove it")
	errUnowned  = errors.New("the file is not one of an owner's tickets")
)
