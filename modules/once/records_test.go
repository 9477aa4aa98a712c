package once

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// flat is storage that removes no folders.
type flat struct{ *certmagic.FileStorage }

func (f flat) Delete(ctx context.Context, key string) error {
	if info, err := f.Stat(ctx, key); err == nil && !info.IsTerminal {
		return nil
	}
	return f.FileStorage.Delete(ctx, key)
}

func testKey(t testing.TB, text string) *key {
	t.Helper()
	k, err := deriveKey("example.com", "anna", text)
	if err != nil {
		t.Fatal(err)
	}
	return &k
}

// A record is found for as long as it is kept, over midnights, and by a machine whose clock is
// behind.
func TestRecordsOverMidnight(t *testing.T) {
	r := &records{storage: &certmagic.FileStorage{Path: t.TempDir()}}
	began := time.Date(2026, 3, 1, 0, 0, 5, 0, time.UTC)
	k := testKey(t, "k")
	if _, err := r.store(k, &record{Outcome: repeated, Since: began, Status: 201, Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after, keep time.Duration
		found       bool
	}{
		{0, day, true},
		{day, day, true},
		{day + time.Second, day, false},
		{day + time.Second, maxKeep, true},
		{maxKeep, maxKeep, true},
		{maxKeep + time.Second, maxKeep, false},
		{-5 * time.Minute, time.Minute, true},
	} {
		found, err := r.load(t.Context(), k, c.keep, began.Add(c.after))
		if err != nil || (found != nil) != c.found || found != nil && string(found.Body) != "body" {
			t.Errorf("%s later, kept for %s: %+v, %v", c.after, c.keep, found, err)
		}
	}
}

// A sweep removes the folders of which nothing is repeated any more, and no other, also from
// storage that removes only files.
func TestSweep(t *testing.T) {
	now := time.Date(2026, 3, 20, 0, 5, 0, 0, time.UTC)
	for _, flatly := range []bool{false, true} {
		files := &certmagic.FileStorage{Path: t.TempDir()}
		r := &records{storage: files, log: zap.NewNop()}
		if flatly {
			r.storage = flat{files}
		}
		for age := range 70 {
			if _, err := r.store(testKey(t, "k"), &record{Outcome: repeated, Since: now.Add(-time.Duration(age) * day)}); err != nil {
				t.Fatal(err)
			}
		}
		r.sweep(t.Context(), now)
		left, err := files.List(t.Context(), "orderly/once", true)
		left = slices.DeleteFunc(left, func(name string) bool { return path.Dir(name) == "orderly/once" }) // folders
		for i, name := range left {
			left[i] = path.Base(path.Dir(name))
		}
		slices.Sort(left)
		if err != nil || len(left) != 70-sweptDays || left[len(left)-9] != "2026-03-12" || left[len(left)-1] != "2026-03-20" {
			t.Errorf("flat %v: left are %v", flatly, left)
		}
	}
}

// silent is storage that does not answer until a channel is closed.
type silent struct {
	certmagic.Storage
	loads atomic.Int32
	end   chan struct{}
}

func (s *silent) Load(context.Context, string) ([]byte, error) {
	s.loads.Add(1)
	<-s.end
	return nil, fs.ErrNotExist
}

func (s *silent) Store(context.Context, string, []byte) error { <-s.end; return nil }

// Storage that does not answer has failed after some time. Bug: files on a disk that hung held requests, and
// their turns, for as long as it did.
func TestSilentStorage(t *testing.T) {
	k := testKey(t, "k")
	synctest.Test(t, func(t *testing.T) {
		s, begun := &silent{end: make(chan struct{})}, time.Now()
		r := &records{storage: s}
		if _, err := r.load(t.Context(), k, day, begun); err == nil || time.Since(begun) != patience {
			t.Errorf("loading ended after %s: %v", time.Since(begun), err)
		}
		if _, err := r.store(k, &record{Outcome: unknown, Since: begun}); err == nil || time.Since(begun) != 2*patience {
			t.Errorf("storing ended after %s: %v", time.Since(begun), err)
		}
		close(s.end)
	})
}

// Bug: requests went on to ask a disk that hung, each with a thread, of which Go allows a process 10,000.
func TestSilentStorageIsAskedNoMore(t *testing.T) {
	s := &silent{end: make(chan struct{})}
	r, k, group := &records{storage: s}, testKey(t, "k"), new(sync.WaitGroup)
	for range 2 * cap(busy) {
		group.Go(func() { _, _ = r.load(t.Context(), k, day, time.Now()) })
	}
	wait.Until(t, "the storage is busy", func() bool { return len(busy) == cap(busy) })
	if time.Sleep(10 * time.Millisecond); int(s.loads.Load()) > cap(busy) {
		t.Errorf("%d loads at a time", s.loads.Load())
	}
	close(s.end)
	group.Wait()
}

// Keys of other hosts and scopes have other names, however these are joined.
func TestKeysNeverMeet(t *testing.T) {
	names := make(map[string]bool)
	for _, k := range [][3]string{
		{"a", "b", "c"}, {"a", "bc", ""}, {"ab", "", "c"}, {"a", "", "bc"}, {"", "ab", "c"}, {"b", "a", "c"},
	} {
		derived, err := deriveKey(k[0], k[1], k[2])
		if err != nil || names[derived.hash] || len(derived.hash) != 32 {
			t.Errorf("%q: %q, %v", k, derived.hash, err)
		}
		names[derived.hash] = true
	}
}
