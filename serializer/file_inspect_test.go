//go:build unix && !aix && !solaris

package serializer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

func TestInspectOnlyLooks(t *testing.T) {
	dir := t.TempDir()
	queues, err := Inspect(dir)
	if err != nil || len(queues) != 0 || len(filesOf(t, dir)) != 0 {
		t.Errorf("an empty directory: queues %v, error %v, files %v", queues, err, filesOf(t, dir))
	}
	missing := filepath.Join(dir, "missing")
	if _, err := Inspect(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	if len(filesOf(t, dir)) != 0 {
		t.Errorf("there are now files: %v", filesOf(t, dir))
	}
}

func TestInspectAgreesWithEngine(t *testing.T) {
	dir := t.TempDir()
	f, err := OpenFile(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	rules := []Rule{{Shared: true}, {Shared: true}, {Limit: 1}, {Shared: true}}
	done := make(chan struct{}, 10)
	for i, r := range rules {
		for _, queue := range []string{"a_", "a_b_"} {
			go func() {
				turn, err := f.Enter(ctx, Arrival{Queue: queue, Rule: r, Client: netip.MustParseAddrPort(fmt.Sprintf("[2001:db8::1]:%d", i+1))})
				if err == nil {
					<-ctx.Done()
					turn.Leave()
				}
				done <- struct{}{}
			}()
		}
		wait.Until(t, "the list is as expected", func() bool {
			queues, err := f.Queues(ctx)
			return err == nil && len(queues) == 2 && len(queues[0].Tickets) == i+1 && len(queues[1].Tickets) == i+1
		})
	}
	before := filesOf(t, dir)
	want, _ := f.Queues(ctx)
	got, err := Inspect(dir)
	if err != nil || len(got) != len(want) {
		t.Fatalf("queues are %v, error %v; expected %v", got, err, want)
	}
	for i := range want {
		if got[i].Prefix != want[i].Prefix || got[i].Inside != 2 || got[i].Waiting != 2 || want[i].Inside != 2 {
			t.Errorf("queue %d: %+v; the engine says %+v", i, got[i], want[i])
		}
		for j := range want[i].Tickets {
			g, w := got[i].Tickets[j], want[i].Tickets[j]
			if g.Token != w.Token || g.State != w.State || g.Client != w.Client || g.Owner != w.Owner || !isTrue(g.Alive) {
				t.Errorf("ticket %d: %+v; the engine says %+v", j, g, w)
			}
		}
	}
	if after := filesOf(t, dir); !slices.Equal(before, after) {
		t.Errorf("files were %v and are %v", before, after)
	}
	cancel()
	for range 2 * len(rules) {
		<-done
	}
}

// Files that only look like tickets belong to other programs, or are links to other
// places. They are never opened.
func TestInspectUnownedFiles(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	old := Ticket{Prefix: "a_", Stamp: minStamp + 1}
	young := Ticket{Prefix: "a_", Stamp: uint64(time.Now().UnixMicro()), Client: netip.MustParseAddrPort("192.0.2.1:80")}
	write(t, elsewhere, string(self(ownerKind{}, time.Now()).text()))
	if err := os.Symlink(elsewhere, filepath.Join(dir, old.Name())); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, young.Name()), "")
	write(t, filepath.Join(dir, "a_no_ticket"), "")
	queues, err := Inspect(dir)
	if err != nil || len(queues) != 1 || len(queues[0].Tickets) != 2 {
		t.Fatalf("queues are %+v, error %v; expected one with two tickets", queues, err)
	}
	for i, ticket := range queues[0].Tickets {
		// Bug: such a file counted as alive if the time in its name was less
		// than five minutes ago.
		if ticket.Owner != "not a ticket of Orderly" || ticket.Alive == nil || *ticket.Alive {
			t.Errorf("ticket %d is %+v; expected an unowned file, not alive", i, ticket)
		}
	}
	if evicted, err := EvictFrom(t.Context(), dir, "a_", old.Stamp, true); err != nil || !evicted.Removed || !evicted.Returned {
		t.Errorf("evicting an unowned file: %+v, %v", evicted, err)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEvictFrom(t *testing.T) {
	dir := t.TempDir()
	f, err := OpenFile(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	revoked := make(chan error, 1)
	turn, err := f.Enter(t.Context(), Arrival{Queue: "a_", Revoke: func(cause error) { revoked <- cause }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EvictFrom(t.Context(), dir, "a_", turn.Token()+1, true); !errors.Is(err, ErrNoTicket) {
		t.Errorf("evicting what is not there: %v", err)
	}
	if _, err := EvictFrom(t.Context(), dir, "a", turn.Token(), true); !errors.Is(err, ErrNoTicket) {
		t.Errorf("evicting from another queue: %v", err)
	}
	if _, err := EvictFrom(t.Context(), dir, "a_", turn.Token(), false); !errors.Is(err, ErrInside) {
		t.Errorf("evicting a holder without force: %v", err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := f.Enter(t.Context(), Arrival{Queue: "a_"})
		refused <- err
	}()
	var waiting uint64
	wait.Until(t, "the list is as expected", func() bool {
		queues, err := Inspect(dir)
		if err != nil || len(queues[0].Tickets) < 2 {
			return false
		}
		_, err = fmt.Sscan(queues[0].Tickets[1].Token, &waiting)
		return err == nil
	})
	evicted, err := EvictFrom(t.Context(), dir, "a_", waiting, false)
	if err != nil || !evicted.Returned || evicted.Removed || evicted.Ticket.State != StateWaiting {
		t.Errorf("evicting a waiter: %+v, %v", evicted, err)
	}
	if err := <-refused; !errors.Is(err, ErrEvicted) {
		t.Errorf("the waiter got %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	evicted, err = EvictFrom(ctx, dir, "a_", turn.Token(), true)
	if err != nil || evicted.Returned {
		t.Errorf("evicting a holder that does not leave: %+v, %v", evicted, err)
	}
	if err := <-revoked; !errors.Is(err, ErrEvicted) {
		t.Errorf("the holder was revoked with %v", err)
	}
	turn.Leave()
}
