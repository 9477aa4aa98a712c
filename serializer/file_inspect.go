package serializer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ErrInside is the error of [EvictFrom] for a ticket that is inside, if the caller did
// not allow that.
var ErrInside = errors.New("the ticket is inside")

// ErrNotObeyed is the error of [EvictFrom] if the process that owns the ticket does not
// react. It may be stopped.
var ErrNotObeyed = errors.New("the owner of the ticket does not react")

// Inspect lists the queues of a lock directory, ordered by prefix, as they are on the
// disk. It does not take part in them: it makes no files, does not take the guard, and
// follows no symbolic links. Any user who can read the directory may call it, whether
// or not a process works there. In a directory that everybody may write to, each user
// has separate queues, and all are listed.
//
// As in the engine, the order and the owners' rules determine which tickets are inside.
// The time of entry and the request are not known from outside. [TicketState.Alive]
// says whether the owner's lock is held; it is nil if this user may not open the lock
// file. A file of another program has no lock, so no owner is known to be alive, and
// [TicketState.Owner] says what it is. [File] waits for such a file until it is five
// minutes old.
func Inspect(path string) ([]QueueState, error) {
	d, err := openOutside(path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	views, err := d.byUser()
	if err != nil {
		return nil, err
	}
	states := make([]QueueState, 0)
	for _, view := range views {
		s, err := survey(view)
		if err != nil {
			return nil, err
		}
		states = append(states, s.states(d.path)...)
	}
	slices.SortStableFunc(states, func(a, b QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states, nil
}

// sighting is a snapshot of a lock directory, seen from outside.
type sighting struct {
	queues ticketQueues
	owners map[*ticket]ownerSeen
}

func newSighting() *sighting {
	return &sighting{queues: newTicketQueues(), owners: make(map[*ticket]ownerSeen)}
}

// survey reads a directory.
func survey(d *outsideDir) (*sighting, error) {
	names, err := d.list()
	if err != nil {
		return nil, &StorageError{"listing lock directory", d.path, err}
	}
	s := newSighting()
	known := make(map[fileID]ownerSeen) // the tickets of an owner are one file
	for _, name := range names {
		if strings.HasPrefix(name, ownFiles) {
			if d.pauses(name) {
				s.notePause(name)
			}
			continue
		}
		t, err := ParseTicket(name)
		if err != nil {
			continue // not of any queue
		}
		id, user, err := d.whose(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotOurs) {
			continue
		}
		if err != nil {
			return nil, &StorageError{"checking lock file", filepath.Join(d.path, name), err}
		}
		owner, ok := known[id]
		if !ok {
			if owner, err = d.ask(t, name, user); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, &StorageError{"checking lock file", filepath.Join(d.path, name), err}
			}
			known[id] = owner
		}
		s.add(&ticket{Item: queue.Item[*ticket]{Rule: owner.about.Rule}, Ticket: t, name: name, known: true}, owner)
	}
	for _, q := range s.queues.byName {
		s.queues.setPause(q)
		q.advance(nil) // without a grant callback: no ticket here is local
	}
	return s, nil
}

func (s *sighting) add(t *ticket, owner ownerSeen) {
	q := s.queues.open(t.Prefix)
	if owner.ours || owner.about.GroupUnknown {
		q.noteOwner(owner.about)
	}
	q.insert(t)
	s.owners[t] = owner
}

// ask determines a ticket's owner.
func (d *outsideDir) ask(t Ticket, name, user string) (ownerSeen, error) {
	probe, err := d.probe(name)
	switch {
	case errors.Is(err, errUnowned):
		return ownerSeen{name: unownedText, alive: new(false)}, nil
	case errors.Is(err, fs.ErrPermission):
		return ownerSeen{name: "unreadable, of " + user, about: Owner{GroupUnknown: true}}, nil
	case err != nil:
		return ownerSeen{}, err
	}
	defer probe.close()
	dead, err := probe.dead()
	if err != nil {
		return ownerSeen{}, err
	}
	return ownerSeen{name: probe.owner().String(), ours: true, about: probe.owner(), alive: new(!dead)}, nil
}

// states describes the queues for people.
func (s *sighting) states(path string) []QueueState {
	return s.queues.states(path, time.Now(), func(t *ticket) ownerSeen { return s.owners[t] })
}

// Evicted is the result of an eviction from outside.
type Evicted struct {
	// Ticket is the ticket as it was found.
	Ticket TicketState

	// Removed means that no living process of Orderly owned the ticket, so its lock file
	// was removed. Otherwise, the owner was asked, and has obeyed.
	Removed bool

	// Returned means that the request is no longer in the queue. A holder may need time
	// to return after it was revoked.
	Returned bool
}

const (
	// obeyTime is how long an owner may take to notice an eviction marker. It syncs ten
	// times a second.
	obeyTime = 3 * time.Second

	evictPoll = 10 * time.Millisecond
)

// EvictFrom takes a ticket out of a queue of a lock directory, from outside. It asks a
// living owner by a file in the directory, and waits until the owner has obeyed. Then
// it waits until the ticket is gone or ctx is done. A ticket without a living owner is
// removed.
//
// A ticket that is inside is evicted only if inside is true; otherwise, the error is
// [ErrInside]. A ticket that enters before the owner obeys is revoked in any case. The
// error is [ErrNoTicket] if there is no such ticket, and [ErrNotObeyed] if its owner
// does not react within three seconds; the ticket then stays.
func EvictFrom(ctx context.Context, path, queue string, token uint64, inside bool) (Evicted, error) {
	d, err := openOutside(path)
	if err != nil {
		return Evicted{}, err
	}
	defer d.close()
	d, s, t, err := d.find(queue, token)
	if err != nil {
		return Evicted{}, fmt.Errorf("evicting ticket %d from queue %q in %s: %w", token, queue, path, err)
	}
	owner := s.owners[t]
	found := Evicted{Ticket: t.state(time.Now())}
	found.Ticket.Owner, found.Ticket.Alive = owner.name, owner.alive
	if t.isInside() && !inside {
		return found, fmt.Errorf("evicting ticket %d from queue %q in %s: %w", token, queue, d.path, ErrInside)
	}
	found.Removed = !owner.ours || !isTrue(owner.alive)
	if err := evictFile(d, t.Ticket); err != nil {
		return found, fmt.Errorf("evicting ticket %d from queue %q in %s: %w", token, queue, d.path, err)
	}
	return d.awaitEviction(ctx, t, found)
}

// find looks for a ticket in the queues of all users. It returns the directory as the
// ticket's user sees it.
func (d *outsideDir) find(queue string, token uint64) (*outsideDir, *sighting, *ticket, error) {
	views, err := d.byUser()
	if err != nil {
		return nil, nil, nil, err
	}
	for _, view := range views {
		s, err := survey(view)
		if err != nil {
			return nil, nil, nil, err
		}
		if t := s.queues.byName[queue].find(token); t != nil {
			return view, s, t, nil
		}
	}
	return nil, nil, nil, ErrNoTicket
}

// awaitEviction waits until a ticket is gone, or until its owner has obeyed and ctx is
// done.
func (d *outsideDir) awaitEviction(ctx context.Context, t *ticket, found Evicted) (Evicted, error) {
	marker := evictMarker + string(appendDigits(nil, t.Stamp, stampDigits))
	defer func() { _ = d.remove(marker) }() // in case the ticket left by itself
	patience := time.NewTimer(obeyTime)
	defer patience.Stop()
	look := time.NewTicker(evictPoll)
	defer look.Stop()
	for {
		if !d.exists(t.name) {
			found.Returned = true
			return found, nil
		}
		obeyed := !d.exists(marker)
		if obeyed && ctx.Err() != nil {
			return found, nil
		}
		if !obeyed && ctx.Err() != nil {
			return found, fmt.Errorf("evicting ticket %d from queue %q in %s: %w", t.Stamp, t.Prefix, d.path, ctx.Err())
		}
		select {
		case <-ctx.Done():
		case <-look.C:
		case <-patience.C:
			if !obeyed {
				return found, fmt.Errorf("evicting ticket %d from queue %q in %s: %w: %s", t.Stamp, t.Prefix, d.path, ErrNotObeyed, found.Ticket.Owner)
			}
		}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func (d *outsideDir) exists(name string) bool {
	_, err := d.identify(name)
	return !errors.Is(err, fs.ErrNotExist)
}
