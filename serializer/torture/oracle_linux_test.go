package main

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The oracle finds what is wrong in a history, and only that.
func TestOracle(t *testing.T) {
	const a, b = 1, 2
	enter := func(process int, token uint64) record { return record{process: process, what: enters, token: token} }
	leave := func(process int) record { return record{process: process, what: leaves} }
	for _, test := range []struct {
		name    string
		history []record
		want    []string
	}{
		{"one after the other", []record{enter(a, 1), leave(a), enter(b, 2), leave(b)}, nil},
		{"together", []record{enter(a, 1), enter(b, 2)}, []string{overlap}},
		{"in the wrong order", []record{enter(a, 2), leave(a), enter(b, 1)}, []string{inversion}},
		{"after a death", []record{enter(a, 1), {process: a, what: dies}, enter(b, 2)}, nil},
		{"by a dead process", []record{{process: a, what: dies}, enter(a, 1), enter(b, 2)}, nil},
		{"evicted on request", []record{{process: a, what: evicts, token: 3}, {process: b, what: revokes, token: 3}}, nil},
		{"evicted without", []record{{process: b, what: revokes, token: 3}}, []string{evictedUnasked}},
		{"in vain", []record{{process: b, what: refuses, outcome: starved}}, []string{inVain}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOracle()
			for i, r := range test.history {
				r.at = int64(i + 1)
				o.judge(&r)
			}
			if found := slices.Sorted(maps.Keys(o.found)); !slices.Equal(found, test.want) {
				t.Errorf("found %q; expected %q", found, test.want)
			}
		})
	}
}

// Of a queue with slots, a ticket may be inside without one when a process learns of a pause. Bug: when it got
// its slot, that was taken for an intrusion.
func TestLastInside(t *testing.T) {
	ticket := func(token, state string) serializer.TicketState {
		return serializer.TicketState{Token: token, State: state, Requester: anybody{}}
	}
	tickets := []serializer.TicketState{
		ticket("1", serializer.StateInside), ticket("2", serializer.StateWaiting),
		ticket("3", serializer.StateWaiting), ticket("4", serializer.StateWaiting),
	}
	if with, without := lastInside(tickets, queues[7]), lastInside(tickets, queues[6]); with != 3 || without != 1 {
		t.Errorf("with slots, the last one inside is %d, and %d without; expected 3 and 1", with, without)
	}
}

// The small disk can be filled. Bug: its inodes were used up long before its pages.
func TestFillDisk(t *testing.T) {
	dir := t.TempDir()
	if !mountSmall(dir, 64) {
		t.Skip("only root can mount a file system; run the tests with: sudo go test ./...")
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	useBytes(dir+"/file", 2)
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil || disk.Bavail > 2 || disk.Ffree < 64 {
		t.Errorf("%d pages and %d inodes are left (%v)", disk.Bavail, disk.Ffree, err)
	}
}
