//go:build unix && !aix && !solaris

// Package guard keeps the guard of a lock directory: the file whose lock decides which
// process numbers tickets, and which records the last number.
package guard

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// The guard starts with the last ticket's number: 20 digits and a line feed. It is
// recorded with every ticket, but not flushed to the disk: that would cost more than
// everything else. After a power failure, the file may have old content, and the clock
// may be behind. So a second line has a bound, which is flushed, and the ID of the boot in
// which that was written. No number above the bound has been issued. After the next boot,
// numbers go on above it.
//
// A bound that another process has written may not be on the disk yet, or never get there.
// So each process flushes one of its own, once for many numbers.
const (
	digits = 20
	lineAt = digits + 1
	bootAt = lineAt + digits + 1
)

// reserved is how far a bound is ahead. After a boot, numbers may be that far ahead of the
// clock.
const reserved = uint64(10 * time.Minute / time.Microsecond)

// Guard is the open guard file of a directory. It is not safe for concurrent use.
type Guard struct {
	dir   *dir.Dir
	path  string
	fd    int
	id    dir.ID
	holds func() bool // see Stay
	boot  string      // identifies the current boot of the machine; empty if the system does not say
	bound uint64      // numbers up to this one may be issued: this process has put it on the disk
}

// Open opens the guard of a directory, or makes it.
func Open(d *dir.Dir) (*Guard, error) {
	fd, info, err := d.OpenFile(name.Guard, unix.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Mark(name.Guard); err == nil { // perhaps another process has made it meanwhile
			fd, info, err = d.OpenFile(name.Guard, unix.O_RDWR)
		}
	}
	if err != nil {
		return nil, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	g := &Guard{dir: d, path: filepath.Join(d.Path(), name.Guard), fd: fd, id: info.ID, boot: strings.TrimSpace(string(boot))}
	text, err := g.read()
	switch {
	case err != nil:
	case strings.HasPrefix(text, name.OwnerText): // somebody has moved it there
		err = dir.ErrNotOurs
	case info.Links > 1:
		err = errors.New("it has a second name, perhaps in a copy of the directory (cp -al); remove it here or there")
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// Otherwise, it may be anybody's file: somebody may have renamed it.
	if numberIn(text, 0, '\n') > 0 && (len(text) == lineAt || numberIn(text, lineAt, ' ') > 0 && int(info.Size) == len(text)) {
		d.Adopt(fd, dir.GroupWrites)
	}
	return g, nil
}

// Lock waits until this process has the guard, or ctx is done, or the guard was replaced. In
// the last two cases, the guard is closed. The error for a closed one is [dir.ErrReplaced].
func (g *Guard) Lock(ctx context.Context) error {
	if g.fd < 0 {
		return dir.ErrReplaced
	}
	locked, err := filelock.Try(uintptr(g.fd))
	if locked || err != nil {
		return err
	}
	fd, result := g.fd, make(chan error, 1)
	go func() { result <- filelock.Wait(uintptr(fd)) }()
	for err != dir.ErrReplaced && ctx.Err() == nil {
		select {
		case err := <-result:
			return err
		case <-time.After(100 * time.Millisecond): // the process that has it may be stopped
			err = g.Check()
		case <-ctx.Done():
		}
	}
	g.fd = -1
	go func() {
		<-result
		_ = unix.Close(fd)
	}()
	return cmp.Or(context.Cause(ctx), err)
}

// Unlock releases the guard.
func (g *Guard) Unlock() { _ = filelock.Unlock(uintptr(g.fd)) }

// Check returns an error unless the guard is still the one at its path. [dir.ErrReplaced]
// means that another process may have taken another one.
func (g *Guard) Check() error {
	if g.holds != nil && !g.holds() {
		return dir.ErrReplaced
	}
	return g.dir.Check(g.path, g.id)
}

// Stay has Lock and Check look for the guard in its directory, wherever that was moved, and
// only as long as holds returns true.
func (g *Guard) Stay(holds func() bool) { g.path, g.holds = name.Guard, holds }

// Close closes the file, which releases the guard.
func (g *Guard) Close() {
	_ = unix.Close(g.fd)
	g.fd = -1
}

// Last returns the last number that was issued, as far as the file says; 0 if there is none. If
// the machine was booted since, it is the bound from before. A container with a boot ID of its
// own looks like another boot, too. The caller has the guard, here and below.
func (g *Guard) Last() (uint64, error) {
	text, err := g.read()
	last, bound := numberIn(text, 0, '\n'), numberIn(text, lineAt, ' ')
	if g.bound > 0 || bound > 0 && strings.HasPrefix(text[bootAt:], g.boot+"\n") {
		bound = 0
	}
	return max(last, bound), err
}

// Record records the last number. If necessary, it also reserves more numbers, and returns
// when that is on the disk. That comes second: it hides the bound of the last boot.
func (g *Guard) Record(last uint64) error {
	var buf [lineAt]byte
	err := dir.Write(g.fd, append(name.AppendDigits(buf[:0], last, digits), '\n'), 0)
	if err != nil || last <= g.bound || g.boot == "" {
		return err
	}
	text, err := g.read()
	if err != nil {
		return err
	}
	bound := max(numberIn(text, lineAt, ' '), min(last+reserved, name.MaxNumber))
	line := append(name.AppendDigits(nil, bound, digits), " "+g.boot+"\n"...)
	if err = cmp.Or(dir.Write(g.fd, line, lineAt), g.dir.Sync(g.fd)); err == nil {
		g.bound = bound
	}
	return err
}

func (g *Guard) read() (string, error) {
	var buf [128]byte
	n, err := unix.Pread(g.fd, buf[:], 0)
	return string(buf[:max(n, 0)]), err
}

// numberIn returns the number of a ticket at an offset, or 0 if there is none, because
// somebody else has written to the file.
func numberIn(text string, at int, end byte) uint64 {
	if len(text) <= at+digits || text[at+digits] != end {
		return 0
	}
	n, err := strconv.ParseUint(text[at:at+digits], 10, 64)
	if err != nil || n < name.MinNumber || n >= name.MaxNumber {
		return 0
	}
	return n
}
