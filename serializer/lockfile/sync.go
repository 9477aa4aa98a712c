//go:build unix && !aix && !solaris

package lockfile

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// sync reports all changes in the directory up to now.
func (d *directory) sync() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	return d.syncLocked()
}

func (d *directory) syncLocked() error {
	if d.closed {
		return d.failed("reading changes of", "", serializer.ErrClosed)
	}
	lost, err := d.watch.Read(d.noteLocked)
	if err == nil && lost {
		err = d.listLocked()
	}
	if err != nil {
		d.watch.Distrust()
		return d.failed("reading changes of", "", err)
	}
	d.followUpLocked()
	d.endPausesLocked()
	return nil
}

// listLocked notes all files that are there, and those that are not there any more.
func (d *directory) listLocked() error {
	files, err := d.sys.List()
	if err != nil {
		return err
	}
	d.unsure, d.unaudited, d.blind = true, true, nil
	there := make(map[string]bool, len(files))
	for _, file := range files {
		there[file] = true
		d.noteLocked(dir.Appeared, []byte(file))
	}
	known := slices.AppendSeq([]string{d.own.Name}, maps.Keys(d.local))
	known = slices.AppendSeq(slices.AppendSeq(known, maps.Keys(d.remote)), maps.Keys(d.pauses))
	for _, file := range known {
		if !there[file] {
			d.noteLocked(dir.Vanished, []byte(file))
		}
	}
	return nil
}

// noteLocked notes a change. Most concern the tickets of this process.
func (d *directory) noteLocked(c dir.Change, file []byte) {
	t := d.local[string(file)]
	switch {
	case t != nil && c == dir.Vanished:
		d.noteRemovedLocked(t)
	case t != nil:
	case bytes.HasPrefix(file, []byte(serializer.ReservedPrefix)):
		d.noteSpecialLocked(c, string(file))
	case c == dir.Appeared:
		d.noteAppearedLocked(string(file))
	case c == dir.Vanished:
		d.noteVanishedLocked(string(file))
	}
}

// noteRemovedLocked notes that the file of a local ticket is gone: because the ticket is
// over, or because somebody else has removed it.
func (d *directory) noteRemovedLocked(t *serializer.Ticket) {
	switch state := d.own.State(t.Ref, t.Number); {
	case state.Stands():
		d.restoreLocked(t)
	case state == owner.Leaving && d.withdraw(t) != nil: // the monitor tries again
	default:
		delete(d.local, t.Key)
	}
}

// noteSpecialLocked notes a change of a file that is no ticket.
func (d *directory) noteSpecialLocked(c dir.Change, file string) {
	isOwner := strings.HasPrefix(file, name.Owners)
	switch {
	case file == d.own.Name:
		d.checkOwnLocked() // another file may be in its place
	case isOwner && c == dir.Closed:
		d.reaped = time.Time{} // its lock is about to be released
	case isOwner && c == dir.Appeared:
		d.openOwnerLocked(file)
	case strings.HasPrefix(file, name.Pauses):
		d.notePauseLocked(c, file)
	case strings.HasPrefix(file, name.Evicts) && c == dir.Appeared && !slices.Contains(d.evicts, file):
		d.evicts = append(d.evicts, file)
	case strings.HasPrefix(file, name.New) && c == dir.Appeared:
		if info, err := d.sys.Info(file); err == nil && time.Since(info.Changed) > unownedTime { // its maker has died
			_ = d.unlink(file)
		}
	}
}

// followUpLocked does what the changes have left to be done. All owner files that have
// appeared are open now. Tickets in order are put into a long queue at its end.
func (d *directory) followUpLocked() {
	if len(d.appeared) > 0 {
		d.placeAppearedLocked()
	}
	d.evicts = slices.DeleteFunc(d.evicts, d.obeyLocked)
	if time.Since(d.reaped) >= reapInterval {
		d.reaped = time.Now()
		d.reapLocked()
	}
}

// placeAppearedLocked puts the tickets whose files have appeared into their queues. Those that
// have vanished again and of which no owner knows were over before anybody was asked.
func (d *directory) placeAppearedLocked() {
	appeared := slices.SortedFunc(maps.Values(d.appeared), func(a, b *remoteTicket) int { return cmp.Compare(a.Number, b.Number) })
	clear(d.appeared)
	appeared = slices.DeleteFunc(appeared, d.claimLocked)
	skip := len(appeared) > 0 && d.unaskedLocked() == nil
	for _, r := range appeared {
		if !skip || !r.vanished {
			d.identifyLocked(r)
		}
	}
}

// restoreLocked puts the file of a local ticket back. The ticket keeps its place
// everywhere, because its word stands. If it is over in the meantime, its caller may have
// found no file to remove.
func (d *directory) restoreLocked(t *serializer.Ticket) {
	d.report(slog.LevelWarn, "a lock file was removed by another program; it is put back", "path", d.pathOf(t.Key))
	if err := d.linkLocked(t.Key); err != nil && !errors.Is(err, fs.ErrExist) {
		d.report(slog.LevelError, "a lock file could not be put back; trying again", "path", d.pathOf(t.Key), "error", err)
		d.watch.Distrust() // the next listing will find that it is missing
	}
	if !d.own.State(t.Ref, t.Number).Stands() {
		_ = d.unlink(t.Key)
	}
}
