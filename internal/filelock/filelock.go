// Package filelock locks open files with kernel locks. The kernel releases a lock when
// its process ends, for whatever reason.
//
// A lock belongs to an open file, not to a process: it also excludes other open files of
// the same process. Closing the file releases the lock. A lock only excludes other locks.
// A program that does not ask for a lock can read and write the file.
//
// [Lock] opens the file itself. The other functions take the result of [os.File.Fd]: the
// descriptor of an open file, or its handle on Windows. They return the bare error of the
// system, because the caller knows the path. If there are no such locks, the error wraps
// [errors.ErrUnsupported].
//
// On Unix this is flock, on Windows LockFileEx. Solaris and AIX have no lock that belongs
// to an open file. What only lock files of queues need is there on Unix alone.
package filelock
