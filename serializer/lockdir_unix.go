//go:build unix && !aix && !solaris

package serializer

import (
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// osDir is a real directory.
type osDir struct {
	path      string
	guardPath string
	clock     func() time.Time

	dir   int // the directory, open
	guard int // the guard file, open
	id    fileID
	notes *notifier // nil where the system tells nothing

	boot   string    // tells this start of the machine from others
	synced sync.Once // the directory's entry of the guard

	guardNumber int // of the guard's name among those it may have

	everybody bool // the directory is world-writable: only our files count
	fileMode  uint32
	uid, gid  uint32 // of the directory
	gives     bool   // what we make is given to the directory's owner

	mu      sync.Mutex
	owners  map[Rule]*ownerFile
	used    []*ownerFile // full or removed ones, still linked to
	ids     map[fileID]bool
	tickets map[string]*ownerFile // where hard links are not to be had

	keeper *ownerFile // the one that has the ledger; one for all rules

	striking sync.Mutex
	ledgers  []*ownLedger // of the keeper, and of those before it

	noLinks atomic.Bool // each ticket is a locked file
}

// ownerFile is one of our own, held locked.
type ownerFile struct {
	name   string
	rule   Rule
	fd     int
	id     fileID
	ledger *ownLedger // of the keeper, and of those before it
}

func (o *ownerFile) close() {
	if o.ledger != nil {
		o.ledger.close()
	}
	_ = unix.Close(o.fd)
}

// openLockDir opens a directory that exists, and its guard.
func openLockDir(path string, clock func() time.Time) (lockDir, error) {
	d := &osDir{path: path, guardPath: filepath.Join(path, guardFile), clock: clock, guard: -1, boot: bootID(),
		owners: make(map[Rule]*ownerFile), ids: make(map[fileID]bool), tickets: make(map[string]*ownerFile)}
	var err error
	if d.dir, err = openRetry(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &StorageError{"opening lock directory", path, err}
	}
	if err := d.openGuard(); err != nil {
		d.close()
		return nil, err
	}
	d.notes = newNotifier(d.dir, path)
	return d, nil
}

func openRetry(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (d *osDir) openat(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(d.dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// ourUser reports whether files of the user count in a directory that everybody
// may write to. Those of root do not count for others: nobody else can find out
// whether a process of root's lives.
func ourUser(uid uint32) bool { return int(uid) == os.Geteuid() }

func (d *osDir) lock() error {
	if err := flock(d.guard, unix.LOCK_EX); err != nil {
		return &StorageError{"locking guard file", d.guardPath, err}
	}
	return nil
}

func (d *osDir) unlock() { _ = flock(d.guard, unix.LOCK_UN) }

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

func (d *osDir) check() error {
	var st unix.Stat_t
	err := unix.Lstat(d.guardPath, &st)
	switch {
	case err == unix.ENOENT, err == nil && (fileID{uint64(st.Dev), st.Ino}) != d.id:
		return errReplaced
	case err != nil:
		return &StorageError{"checking guard file", d.guardPath, err}
	case d.precedes():
		return errReplaced
	}
	return nil
}

func (d *osDir) here() bool {
	var st, own unix.Stat_t
	return unix.Stat(d.path, &st) == nil && unix.Fstat(d.dir, &own) == nil && st.Dev == own.Dev && st.Ino == own.Ino
}

// The guard file holds the last ticket's number, 20 digits and a line feed. A second
// line says how far numbers are reserved: the bound; the bound that is known to be on
// the disk; and the ID of the machine's start in which this was written.
const (
	guardSize   = stampDigits + 1
	confirmedAt = guardSize + stampDigits + 1
	bootAt      = confirmedAt + stampDigits + 1
)

func (d *osDir) last() (uint64, error) {
	var text [guardSize]byte
	n, err := unix.Pread(d.guard, text[:], 0)
	if err != nil {
		return 0, &StorageError{"reading guard file", d.guardPath, err}
	}
	stamp, ok := parseDigits(string(text[:min(n, stampDigits)]))
	if n != guardSize || !ok {
		return 0, nil
	}
	return stamp, nil
}

func (d *osDir) setLast(stamp uint64) error {
	var buf [guardSize]byte
	return d.writeGuard(append(appendDigits(buf[:0], stamp, stampDigits), '\n'), 0)
}

func (d *osDir) writeGuard(text []byte, at int64) error {
	n, err := unix.Pwrite(d.guard, text, at)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &StorageError{"writing guard file", d.guardPath, err}
	}
	return nil
}

// reservation says that everything is reserved where the system does not tell of a
// start of the machine.
func (d *osDir) reservation() (r reservation, err error) {
	if d.boot == "" {
		return reservation{bound: maxStamp, confirmed: maxStamp}, nil
	}
	text := make([]byte, bootAt+len(d.boot)+1)
	n, err := unix.Pread(d.guard, text, 0)
	if err != nil {
		return r, &StorageError{"reading guard file", d.guardPath, err}
	}
	if n <= bootAt {
		return r, nil // nothing is reserved
	}
	bound, ok := parseDigits(string(text[guardSize : confirmedAt-1]))
	confirmed, ok2 := parseDigits(string(text[confirmedAt : bootAt-1]))
	if !ok || !ok2 || bound > maxStamp {
		return r, nil // nonsense
	}
	r = reservation{bound: bound, confirmed: confirmed, outdated: string(text[bootAt:n]) != d.boot+"\n"}
	return r, nil
}

func (d *osDir) setBound(bound uint64) error {
	r, err := d.reservation()
	if err != nil {
		return err
	}
	if r.outdated {
		r.confirmed = 0
	}
	text := append(appendDigits(nil, bound, stampDigits), ' ')
	text = append(appendDigits(text, r.confirmed, stampDigits), ' ')
	return d.writeGuard(append(append(text, d.boot...), '\n'), guardSize)
}

// confirm waits for the disk. File systems without one, such as tmpfs, have nothing to
// wait for.
func (d *osDir) confirm(bound uint64) error {
	if err := syncFile(d.guard); err != nil {
		return &StorageError{"writing to the disk guard file", d.guardPath, err}
	}
	var err error
	d.synced.Do(func() { err = syncFile(d.dir) })
	if err != nil {
		return &StorageError{"writing to the disk lock directory", d.path, err}
	}
	return d.writeGuard(appendDigits(nil, bound, stampDigits), confirmedAt)
}

func syncFile(fd int) error {
	for {
		switch err := syncData(fd); err {
		case unix.EINTR:
		case unix.EINVAL, unix.ENOSYS: // it cannot be had here
			return nil
		default:
			return err
		}
	}
}

func (d *osDir) create(name string, stamp uint64, r Rule) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.noteOut(stamp, r); err != nil {
		return &StorageError{"making lock file", filepath.Join(d.path, name), err}
	}
	err := d.make(name, r)
	if err != nil {
		d.strike(stamp)
	}
	return err
}

// noteOut writes a ticket's number into the ledger. One that is damaged is replaced.
func (d *osDir) noteOut(stamp uint64, r Rule) error {
	if err := d.needKeeper(r); err != nil {
		return err
	}
	err := d.keeper.ledger.add(stamp)
	if err != errLedgerGone {
		return err
	}
	d.keeper = nil
	if err := d.needKeeper(r); err != nil {
		return err
	}
	return d.keeper.ledger.add(stamp)
}

// needKeeper sees to it that there is a ledger. The next owner file that is made has
// one if no other does.
func (d *osDir) needKeeper(r Rule) error {
	if d.keeper != nil {
		return nil
	}
	if d.owners[r] != nil {
		d.giveUp(r)
	}
	_, err := d.owner(r)
	return err
}

// giveUp makes the next ticket by a rule have another owner file.
func (d *osDir) giveUp(r Rule) {
	d.used = append(d.used, d.owners[r])
	delete(d.owners, r)
}

// strike strikes out the number of a ticket of ours.
func (d *osDir) strike(stamp uint64) {
	d.striking.Lock()
	defer d.striking.Unlock()
	for _, l := range d.ledgers {
		l.strike(stamp)
	}
}

func (d *osDir) leave(name string, stamp uint64) error {
	d.strike(stamp)
	return d.remove(name)
}

func (d *osDir) restore(name string, r Rule) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.make(name, r)
}

// restoreOwner puts back the name of an owner file that has tickets out: whoever
// comes into the directory looks for it. A file that has no name left at all, as
// where the tickets' are gone, too, cannot get one; then another takes its place.
func (d *osDir) restoreOwner(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.ownerFiles() {
		if o.name != name || o.ledger == nil || len(o.ledger.outstanding()) == 0 {
			continue
		}
		err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(o.fd), d.dir, name, unix.AT_SYMLINK_FOLLOW)
		if err != nil && err != unix.EEXIST {
			_, err = d.renew(o)
		}
		if err != nil && err != unix.EEXIST {
			return &StorageError{"putting back owner file", filepath.Join(d.path, name), err}
		}
	}
	return nil
}

// renew makes an owner file that takes the place of one whose name is gone. The
// tickets that are linked to the old one stay ours: the lock is on the file, not on
// its name. But whoever comes into the directory must find them in a ledger.
func (d *osDir) renew(old *ownerFile) (*ownerFile, error) {
	if d.owners[old.rule] == old {
		d.giveUp(old.rule)
	}
	if d.keeper == old {
		d.keeper = nil
	}
	if err := d.needKeeper(old.rule); err != nil {
		return nil, err
	}
	if err := d.passOn(old); err != nil {
		return nil, err
	}
	return d.owner(old.rule)
}

// passOn writes what is in the ledger of an owner file into the present one. None of
// it is struck out meanwhile.
func (d *osDir) passOn(old *ownerFile) error {
	if old.ledger == nil {
		return nil
	}
	d.striking.Lock()
	defer d.striking.Unlock()
	return d.keeper.ledger.merge(old.ledger.outstanding())
}

// ownerFiles lists our owner files. The caller holds mu.
func (d *osDir) ownerFiles() []*ownerFile {
	return slices.AppendSeq(slices.Clone(d.used), maps.Values(d.owners))
}

// make makes a ticket's file. The caller holds mu.
func (d *osDir) make(name string, r Rule) error {
	err := d.link(name, r)
	if err == unix.EMLINK {
		// The owner file has as many links as the file system allows.
		d.giveUp(r)
		err = d.link(name, r)
	}
	if noHardLinks(err) {
		d.noLinks.Store(true)
	}
	if d.noLinks.Load() {
		err = d.createFile(name, r)
	}
	if err != nil {
		return &StorageError{"making lock file", filepath.Join(d.path, name), err}
	}
	return nil
}

// noHardLinks reports whether an error of link means that this file system or
// directory has none.
func noHardLinks(err error) bool {
	return err == unix.EPERM || err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.ENOTSUP
}

func (d *osDir) link(name string, r Rule) error {
	if d.noLinks.Load() {
		return unix.EOPNOTSUPP
	}
	o, err := d.owner(r)
	if err != nil {
		return err
	}
	err = linkat(d.dir, o.name, name)
	if err == unix.ENOENT {
		if o, err = d.renew(o); err == nil { // somebody removed our owner file
			err = linkat(d.dir, o.name, name)
		}
	}
	return err
}

func linkat(dir int, from, to string) error {
	for {
		if err := unix.Linkat(dir, from, dir, to, 0); err != unix.EINTR {
			return err
		}
	}
}

func (d *osDir) owner(r Rule) (*ownerFile, error) {
	if o := d.owners[r]; o != nil {
		return o, nil
	}
	o, err := d.newOwnerFile(ownerFiles+randomName(), r, d.keeper == nil)
	if err != nil {
		return nil, err
	}
	d.owners[r] = o
	if o.ledger != nil {
		d.keeper = o
		d.noteLedgers()
	}
	return o, nil
}

// noteLedgers notes which ledgers there are. The caller holds mu.
func (d *osDir) noteLedgers() {
	d.striking.Lock()
	defer d.striking.Unlock()
	d.ledgers = nil
	for _, o := range d.ownerFiles() {
		if o.ledger != nil {
			d.ledgers = append(d.ledgers, o.ledger)
		}
	}
}

func randomName() string { return strings.ToLower(rand.Text()[:16]) }

// newOwnerFile makes a file, locks it and then says whose it is, at last, so that
// all else is there for whoever reads that. The guard is held, so nobody takes it
// for abandoned before it is locked.
func (d *osDir) newOwnerFile(name string, r Rule, withLedger bool) (_ *ownerFile, err error) {
	fd, err := d.openat(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, d.fileMode)
	if err != nil {
		return nil, err
	}
	o := &ownerFile{name: name, rule: r, fd: fd}
	d.give(fd)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(d.dir, name, 0)
			o.close()
		}
	}()
	if err := flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("locking it: %w", err)
	}
	_ = unix.Fchmod(fd, d.fileMode)
	if withLedger {
		if o.ledger, err = newLedger(fd); err != nil {
			return nil, err
		}
	}
	text := self(r, d.clock()).text()
	n, err := unix.Pwrite(fd, text, 0)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return nil, fmt.Errorf("writing the owner's name: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	o.id = fileID{uint64(st.Dev), st.Ino}
	d.ids[o.id] = true
	return o, nil
}

// createFile makes a ticket that is a locked file of its own.
func (d *osDir) createFile(name string, r Rule) error {
	o, err := d.newOwnerFile(name, r, false)
	if err != nil {
		return err
	}
	if old := d.tickets[name]; old != nil { // somebody removed it
		old.close()
		delete(d.ids, old.id)
	}
	d.tickets[name] = o
	return nil
}

func (d *osDir) remove(name string) error {
	for {
		err := unix.Unlinkat(d.dir, name, 0)
		switch err {
		case nil, unix.ENOENT:
			d.forget(name)
			return nil
		case unix.EINTR:
		default:
			return &StorageError{"removing lock file", filepath.Join(d.path, name), err}
		}
	}
}

func (d *osDir) changes(fn func(change, []byte)) error {
	if d.notes != nil {
		lost, err := d.notes.read(fn)
		if err != nil {
			return &StorageError{"reading changes of lock directory", d.path, err}
		}
		if !lost {
			return nil
		}
	}
	fn(listing, nil)
	names, err := d.list()
	if err != nil {
		if d.notes != nil {
			d.notes.mistrust() // the next call must list it, too
		}
		return &StorageError{"listing lock directory", d.path, err}
	}
	for _, name := range names {
		fn(appeared, []byte(name))
	}
	return nil
}

func (d *osDir) list() ([]string, error) {
	fd, err := d.openat(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	return f.Readdirnames(-1)
}

func (d *osDir) wait(timeout time.Duration) {
	if d.notes != nil {
		d.notes.wait(timeout)
		return
	}
	time.Sleep(min(timeout, pollInterval))
}

// pollInterval is the time between two looks at the directory where the system
// does not tell of changes.
const pollInterval = 2 * time.Millisecond

func (d *osDir) notifies() bool { return d.notes != nil }

func (d *osDir) checksUsers() bool { return d.everybody }

func (d *osDir) identify(name string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	return d.identity(&st)
}

// age counts from the last change of the file's inode, which nobody can set back as
// they can the other times. What the clock was, a touch of the guard tells. A clock
// that was set since makes a file look older than it is, mostly soon after the machine
// was started; so it is taken for no older than that.
func (d *osDir) age(name string) time.Duration {
	touchFile(d.guard)
	var now, st unix.Stat_t
	if unix.Fstat(d.guard, &now) != nil || unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return min(max(time.Duration(now.Ctim.Nano()-st.Ctim.Nano()), 0), uptime())
}

func (d *osDir) identity(st *unix.Stat_t) (fileID, error) {
	if d.everybody && !ourUser(st.Uid) {
		return fileID{}, errNotOurs
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// osProbe is an owner file of another process.
type osProbe struct {
	fd    int
	file  fileID
	about Owner

	ledger *otherLedger // nil until it is asked for, and where there is none
	asked  bool
}

func (d *osDir) probe(name string) (_ ownerProbe, err error) {
	fd, err := d.openat(name, unix.O_RDONLY, 0)
	if err == unix.ELOOP || err == unix.ENXIO {
		return nil, errStranger // a symbolic link or a socket
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: d.notOpen(name, err)}
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	id, err := d.identity(&st)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errStranger
	}
	about, err := readOwner(fd)
	if err != nil {
		return nil, err
	}
	return &osProbe{fd: fd, file: id, about: about}, nil
}

func readOwner(fd int) (Owner, error) {
	text := make([]byte, maxOwnerSize)
	n, err := unix.Pread(fd, text, 0)
	if err != nil {
		return Owner{}, fmt.Errorf("reading owner file: %w", err)
	}
	return parseOwner(text[:n])
}

func (p *osProbe) id() fileID   { return p.file }
func (p *osProbe) owner() Owner { return p.about }

func (p *osProbe) close() {
	if p.ledger != nil {
		p.ledger.close()
	}
	_ = unix.Close(p.fd)
}

// keepsLedger is false for all files of older versions.
func (p *osProbe) keepsLedger() bool {
	if !p.asked {
		p.ledger, p.asked = openLedger(p.fd), true
	}
	return p.ledger != nil
}

func (p *osProbe) standing(stamp uint64) standing {
	if !p.keepsLedger() {
		return isAbsent
	}
	return p.ledger.standing(stamp)
}

func (p *osProbe) outstanding() (stamps []uint64, ok bool) {
	if !p.keepsLedger() {
		return nil, true
	}
	return p.ledger.outstanding()
}

// dead tries the lock that the owner holds for as long as it lives. The lock is
// shared, so that several who try at once do not take each other for the owner.
func (p *osProbe) dead() (bool, error) {
	err := flock(p.fd, unix.LOCK_SH|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probing the owner's lock: %w", err)
	}
	return true, flock(p.fd, unix.LOCK_UN)
}

func (d *osDir) mark(name string) error {
	fd, err := d.openat(name, unix.O_WRONLY|unix.O_CREAT, d.fileMode)
	if err != nil {
		return &StorageError{"making", filepath.Join(d.path, name), err}
	}
	d.give(fd)
	return unix.Close(fd)
}

// forget closes a ticket that was a file of its own.
func (d *osDir) forget(name string) {
	if !d.noLinks.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.tickets[name]; o != nil {
		o.close()
		delete(d.tickets, name)
		delete(d.ids, o.id)
	}
}

func (d *osDir) owns(id fileID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

func (d *osDir) disown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.owners {
		d.used = append(d.used, o)
	}
	clear(d.owners)
	d.keeper = nil
	for _, o := range d.used {
		_ = unix.Unlinkat(d.dir, o.name, 0)
		o.close()
	}
	d.used = nil
	d.noteLedgers()
}

func (d *osDir) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.ownerFiles() {
		touchFile(o.fd)
	}
	touchFile(d.guard)
}

// touchFile sets the times of a file to now. That takes no more than the right to write
// to it; any other time only its user could set.
func touchFile(fd int) { _ = unix.Futimes(fd, nil) }

func (d *osDir) close() {
	d.disown()
	if d.notes != nil {
		d.notes.close()
	}
	if d.guard >= 0 {
		_ = unix.Close(d.guard)
	}
	_ = unix.Close(d.dir)
}

// tryLockDir makes a directory if it is missing, and finds out whether the
// engine can work there, without waiting for anybody.
func tryLockDir(path string) error {
	if err := makeDir(path); err != nil {
		return &StorageError{"making lock directory", path, err}
	}
	if kind := networkFileSystem(path); kind != "" {
		return &StorageError{"using lock directory", path, fmt.Errorf(
			"it is on a network file system (%s), where locks or notifications do not reach other machines; "+
				"use a local directory, or the etcd engine for several machines", kind)}
	}
	opened, err := openLockDir(path, time.Now)
	if err != nil {
		return err
	}
	d := opened.(*osDir)
	defer d.close()
	name := trialFiles + strconv.Itoa(os.Getpid()) + "-" + randomName()
	o, err := d.newOwnerFile(name, Rule{}, true)
	if err != nil {
		return &StorageError{"trying out a lock file", filepath.Join(path, name), err}
	}
	defer o.close()
	if err := d.remove(name); err != nil {
		return err
	}
	return nil
}
