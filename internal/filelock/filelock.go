// Package filelock locks open files with a lock of the kernel, which takes it
// back when the process dies, however it dies.
//
// A lock belongs to an open file, not to a process: another open file of the
// same process is kept out, too. Closing the file gives the lock back. A lock
// keeps out other locks only; whoever does not ask for one reads and writes the
// file as ever.
//
// [Wait], [Try] and [Unlock] take what [os.File.Fd] returns: the descriptor of
// an open file, on Windows its handle. They return the bare error of the system,
// for the caller knows the path. Where there are no such locks, the error is
// [errors.ErrUnsupported], or wraps it. [Lock] opens the file itself.
//
// On Unix this is flock, on Windows LockFileEx. Solaris and AIX have no lock
// that belongs to an open file.
package filelock

// Mode says whom a lock keeps out.
type Mode int

// The modes of a lock.
const (
	Exclusive Mode = iota // every other lock of the file
	Shared                // the exclusive ones
)
