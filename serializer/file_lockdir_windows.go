package serializer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/windows"
)

// osDir is a real directory. On Windows, each ticket is a separate locked file, because a
// hard link to an open file cannot be removed there. The directory is listed again after
// each change.
type osDir struct {
	path      string
	guardPath string
	clock     func() time.Time
	guard     windows.Handle
	polls     poller

	mu      sync.Mutex
	tickets map[string]ticketFile
	ids     map[fileID]bool
}

// ticketFile is the file of a local ticket, open and locked.
type ticketFile struct {
	h  windows.Handle
	id fileID
}

func openLockDir(path string, clock func() time.Time) (lockDir, error) {
	d := &osDir{path: path, guardPath: filepath.Join(path, guardFile), clock: clock, tickets: make(map[string]ticketFile), ids: make(map[fileID]bool)}
	guard, err := d.open(guardFile, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_ALWAYS)
	if err != nil {
		return nil, &StorageError{"opening guard file", d.guardPath, err}
	}
	d.guard = guard
	d.polls.signal = newChangeSignal(path)
	return d, nil
}

func (d *osDir) file(name string) string { return filepath.Join(d.path, name) }

// open opens a file in a way that lets others read, write and remove it.
func (d *osDir) open(name string, access, how uint32) (windows.Handle, error) {
	path, err := windows.UTF16PtrFromString(d.file(name))
	if err != nil {
		return windows.InvalidHandle, err
	}
	return windows.CreateFile(path, access,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, how,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
}

func (d *osDir) check() error {
	want, err := handleID(d.guard)
	if err != nil {
		return &StorageError{"checking guard file", d.guardPath, err}
	}
	got, err := d.identify(guardFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && got != want {
		return errReplaced
	}
	if err != nil {
		return &StorageError{"checking guard file", d.guardPath, err}
	}
	return nil
}

// here is always true: every access uses the path, and a directory cannot be moved while
// a file in it is open.
func (d *osDir) here() bool { return true }

func (d *osDir) place() fileID { return fileID{} }

const guardSize = stampDigits + 1

func (d *osDir) last() (uint64, error) {
	text, err := os.ReadFile(d.guardPath)
	if err != nil {
		return 0, &StorageError{"reading guard file", d.guardPath, err}
	}
	if len(text) < guardSize {
		return 0, nil
	}
	stamp, _ := parseDigits(string(text[:stampDigits]))
	return stamp, nil
}

// reservation reports that everything is reserved: Windows does not provide a boot ID.
func (d *osDir) reservation() (reservation, error) {
	return reservation{bound: maxStamp, confirmed: maxStamp}, nil
}
func (d *osDir) setBound(uint64) error { return nil }
func (d *osDir) confirm(uint64) error  { return nil }

func (d *osDir) setLast(stamp uint64) error {
	text := append(appendDigits(nil, stamp, stampDigits), '\n')
	var n uint32
	if err := windows.WriteFile(d.guard, text, &n, &windows.Overlapped{}); err != nil {
		return &StorageError{"writing guard file", d.guardPath, err}
	}
	return nil
}

// create makes a file that is the ticket. There are no ledgers on Windows: if another
// program removes the file, the ticket counts as left.
func (d *osDir) create(name string, _ uint64, k ownerKind) error { return d.restore(name, k) }

func (d *osDir) leave(name string, _ uint64) error { return d.remove(name) }
func (d *osDir) restoreOwner(string) error         { return nil }
func (d *osDir) refresh()                          {}
func (d *osDir) announce()                         {}
func (d *osDir) widen()                            {}

func (d *osDir) restore(name string, k ownerKind) error {
	if err := d.createFile(name, k); err != nil {
		return &StorageError{"making lock file", d.file(name), err}
	}
	return nil
}

func (d *osDir) createFile(name string, k ownerKind) error {
	h, err := d.open(name, windows.GENERIC_READ|windows.GENERIC_WRITE|windows.DELETE, windows.CREATE_NEW)
	if err != nil {
		return err
	}
	id, err := d.claim(h, k)
	if err != nil {
		_ = windows.CloseHandle(h)
		_ = os.Remove(d.file(name))
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tickets[name], d.ids[id] = ticketFile{h, id}, true
	return nil
}

// claim locks a file and writes its owner's text.
func (d *osDir) claim(h windows.Handle, k ownerKind) (fileID, error) {
	if err := lockOwnerFile(uintptr(h)); err != nil {
		return fileID{}, err
	}
	var n uint32
	if err := windows.WriteFile(h, self(k, d.clock()).text(), &n, nil); err != nil {
		return fileID{}, fmt.Errorf("writing the owner's name: %w", err)
	}
	return handleID(h)
}

func (d *osDir) remove(name string) error {
	err := d.unlink(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	d.forget(name)
	if err != nil {
		return &StorageError{"removing lock file", d.file(name), err}
	}
	return nil
}

// forget closes the file of a local ticket. From then on, another process's file may have
// the same identity.
func (d *osDir) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ours := d.tickets[name]
	if !ours {
		return
	}
	delete(d.tickets, name)
	delete(d.ids, f.id)
	_ = windows.CloseHandle(f.h)
}

func (d *osDir) changes(fn func(change, []byte)) error {
	fn(listing, nil)
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return &StorageError{"listing lock directory", d.path, err}
	}
	for _, e := range entries {
		fn(appeared, []byte(e.Name()))
	}
	return nil
}

func (d *osDir) wait(timeout time.Duration) { d.polls.wait(timeout) }
func (d *osDir) interrupt()                 { d.polls.interrupt() }
func (d *osDir) notifies() bool             { return false }
func (d *osDir) checksUsers() bool          { return false }
func (d *osDir) age(string) time.Duration   { return 0 }

func (d *osDir) identify(name string) (fileID, error) {
	h, err := d.open(name, 0, windows.OPEN_EXISTING)
	if err != nil {
		return fileID{}, &fs.PathError{Op: "open", Path: d.file(name), Err: err}
	}
	defer windows.CloseHandle(h)
	return handleID(h)
}

func handleID(h windows.Handle) (fileID, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(info.VolumeSerialNumber), uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)}, nil
}

func (d *osDir) owns(id fileID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

type osProbe struct {
	h     windows.Handle
	file  fileID
	about Owner
}

func (d *osDir) probe(name string) (_ ownerProbe, err error) {
	h, err := d.open(name, windows.GENERIC_READ, windows.OPEN_EXISTING)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.file(name), Err: err}
	}
	defer func() {
		if err != nil {
			_ = windows.CloseHandle(h)
		}
	}()
	id, err := handleID(h)
	if err != nil {
		return nil, err
	}
	text := make([]byte, maxOwnerSize)
	var n uint32
	if err := windows.ReadFile(h, text, &n, nil); err != nil && err != windows.ERROR_HANDLE_EOF {
		return nil, fmt.Errorf("reading owner file: %w", err)
	}
	about, err := parseOwner(text[:n])
	if err != nil {
		return nil, err
	}
	return &osProbe{h: h, file: id, about: about}, nil
}

func (p *osProbe) id() fileID   { return p.file }
func (p *osProbe) owner() Owner { return p.about }
func (p *osProbe) close()       { _ = windows.CloseHandle(p.h) }

func (p *osProbe) standing(uint64) standing      { return isAbsent }
func (p *osProbe) keepsLedger() bool             { return false }
func (p *osProbe) outstanding() ([]uint64, bool) { return nil, true }

func (p *osProbe) dead() (bool, error) { return ownerIsDead(uintptr(p.h)) }

func (d *osDir) mark(name string) error {
	h, err := d.open(name, windows.GENERIC_WRITE, windows.OPEN_ALWAYS)
	if err != nil {
		return &StorageError{"making", d.file(name), err}
	}
	return windows.CloseHandle(h)
}

func (d *osDir) disown() {}

func (d *osDir) close() {
	d.polls.close()
	_ = windows.CloseHandle(d.guard)
}

func tryLockDir(path string) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return &StorageError{"making lock directory", path, err}
	}
	if networkFileSystem(path) != "" {
		return &StorageError{"using lock directory", path, errors.New(
			"it is on a network drive, where locks do not reach other machines; use a local directory, or the etcd engine for several machines")}
	}
	opened, err := openLockDir(path, time.Now)
	if err != nil {
		return err
	}
	d := opened.(*osDir)
	defer d.close()
	name := trialFiles + strings.ToLower(rand.Text()[:16])
	if err := d.create(name, 0, ownerKind{}); err != nil {
		return err
	}
	return d.remove(name)
}

// networkFileSystem names the network drive of a path, or returns "".
func networkFileSystem(path string) string {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil || windows.GetDriveType(root) != windows.DRIVE_REMOTE {
		return ""
	}
	return "network drive"
}
