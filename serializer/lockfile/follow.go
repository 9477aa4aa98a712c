//go:build unix && !aix && !solaris

package lockfile

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// remoteTicket is a ticket in a queue that is not one of this process's.
type remoteTicket struct {
	serializer.Ticket
	by       *owner.Remote // nil if that is not known
	since    time.Time     // when an owner last had a word for it, or when its file was changed
	changed  time.Time     // the same change, by the file system's clock
	vanished bool          // its file has vanished again before its owner was asked
}

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
	if len(d.appeared) > 0 { // all owner files that have appeared are open now
		d.placeAppearedLocked()
	}
	d.evicts = slices.DeleteFunc(d.evicts, d.obeyLocked)
	d.reapLocked()
	d.endPausesLocked()
	return nil
}

// listLocked notes all files that are there, and those that are not there any more.
func (d *directory) listLocked() error {
	files, err := d.sys.List()
	if err != nil {
		return err
	}
	d.unsure, d.audited, d.unreadable = true, false, nil
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
	case d.appeared[string(file)] != nil:
		d.appeared[string(file)].vanished = true
	case d.remote[string(file)] != nil:
		d.checkTicketLocked(d.remote[string(file)])
	}
}

// noteRemovedLocked notes that the file of a local ticket is gone.
func (d *directory) noteRemovedLocked(t *serializer.Ticket) {
	switch state := d.own.State(t.Ref, t.Number); {
	case state.Stands():
		d.putBackLocked(t) // see repair.go
	case state == owner.Leaving && d.withdraw(t) != nil: // the monitor tries again
	default:
		delete(d.local, t.Key)
	}
}

// noteSpecialLocked notes a change of a file that is no ticket.
func (d *directory) noteSpecialLocked(c dir.Change, file string) {
	switch {
	case file == d.own.Name:
		d.checkOwnLocked() // see repair.go
	case strings.HasPrefix(file, name.Owners) && c == dir.Appeared:
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

// noteAppearedLocked notes a file that has appeared. Its owner may not be known yet.
func (d *directory) noteAppearedLocked(file string) {
	if n, err := name.Parse(file); err == nil && d.remote[file] == nil {
		d.unsure = true
		t := serializer.Ticket{Queue: n.Prefix, Number: n.Number, Client: n.Client.String(), Key: file, Arrived: time.UnixMicro(int64(n.Number))}
		d.appeared[file] = &remoteTicket{Ticket: t, since: time.Now()}
	}
}

// placeAppearedLocked puts the tickets whose files have appeared into their queues, in order:
// so each goes to the end of a long queue.
func (d *directory) placeAppearedLocked() {
	appeared := slices.SortedFunc(maps.Values(d.appeared), func(a, b *remoteTicket) int { return cmp.Compare(a.Number, b.Number) })
	clear(d.appeared)
	if unclaimed := slices.DeleteFunc(appeared, d.claimLocked); len(unclaimed) > 0 {
		d.identifyLocked(unclaimed) // see repair.go
	}
}

// claimLocked reports whether an owner has a word for a ticket. It puts the ticket into its
// queue, unless it is over.
func (d *directory) claimLocked(r *remoteTicket) bool {
	said := find(*d.owners.Load(), r.Number, r.Key)
	if said.Stands() {
		r.by, r.Owner, r.Rule = said.by, said.by.Process, said.rule
		d.last = max(d.last, r.Number)
		d.enterLocked(r)
	}
	return said.by != nil
}

func (d *directory) enterLocked(r *remoteTicket) {
	d.remote[r.Key] = r
	d.events.Appeared(&r.Ticket)
}

func (d *directory) dropLocked(r *remoteTicket) {
	delete(d.remote, r.Key)
	d.events.Vanished(&r.Ticket)
}

// checkTicketLocked asks the owner of a ticket, and drops the ticket if it is over. Whether its
// file exists does not matter: somebody may have removed it, or it cannot be removed.
func (d *directory) checkTicketLocked(r *remoteTicket) {
	switch said, err := d.askLocked(r); {
	case err != nil: // its owner may be one that cannot be asked
	case said.Stands():
		r.by, r.since = said.by, time.Now()
	case said.by != nil:
		d.dropLocked(r)
	default:
		d.checkUnownedLocked(r) // see repair.go
	}
}

func (d *directory) checkTicketsLocked() {
	for _, r := range d.remote {
		d.checkTicketLocked(r)
	}
}
