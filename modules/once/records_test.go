package once

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// flat is storage that removes no folders.
type flat struct{ *certmagic.FileStorage }

func (f flat) Delete(ctx context.Context, key string) error {
	if info, err := f.Stat(ctx, key); err == nil && !info.IsTerminal {
		return nil
	}
	return f.FileStorage.Delete(ctx, key)
}

func testRecords(t *testing.T, flatly bool) (r *records, dir string) {
	t.Helper()
	files := &certmagic.FileStorage{Path: t.TempDir()}
	r = &records{storage: files, log: zap.NewNop()}
	if flatly {
		r.storage = flat{files}
	}
	return r, filepath.Join(files.Path, "orderly", "once")
}

func testKey(t *testing.T, text string) *key {
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
	r, _ := testRecords(t, false)
	began := time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC)
	k := testKey(t, "k")
	if err := r.store(k, &record{State: answered, Since: began, Status: 201, Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after, keep time.Duration
		found       bool
	}{
		{0, 24 * time.Hour, true},
		{2 * time.Second, time.Minute, true},
		{2 * time.Second, 24 * time.Hour, true},
		{24 * time.Hour, 24 * time.Hour, true},
		{24*time.Hour + time.Second, 24 * time.Hour, false},
		{24*time.Hour + time.Second, maxKeep, true},
		{maxKeep, maxKeep, true},
		{maxKeep + time.Second, maxKeep, false},
		{-5 * time.Minute, time.Minute, true},
	} {
		found, err := r.load(t.Context(), k, c.keep, began.Add(c.after))
		if err != nil || (found != nil) != c.found || found != nil && string(found.Body) != "body" {
			t.Errorf("%s later, kept for %s: %+v, %v", c.after, c.keep, found, err)
		}
	}
	early := time.Date(2026, 3, 1, 0, 0, 5, 0, time.UTC)
	other := testKey(t, "other")
	if err := r.store(other, &record{State: "began", Since: early}); err != nil {
		t.Fatal(err)
	}
	if found, _ := r.load(t.Context(), other, time.Hour, early.Add(-time.Minute)); found == nil {
		t.Error("a record of the next day is not found by a clock that is behind")
	}
}

// A sweep removes the folders of which nothing is repeated any more, and no other, also from
// storage that removes only files.
func TestSweep(t *testing.T) {
	now := time.Date(2026, 3, 20, 0, 5, 0, 0, time.UTC)
	for _, flatly := range []bool{false, true} {
		r, dir := testRecords(t, flatly)
		for age := range 70 {
			if err := r.store(testKey(t, "k"), &record{State: answered, Since: now.Add(-time.Duration(age) * day)}); err != nil {
				t.Fatal(err)
			}
		}
		r.sweep(t.Context(), now)
		var left []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				left = append(left, filepath.Base(filepath.Dir(path)))
			}
			return nil
		})
		slices.Sort(left)
		if len(left) != 70-sweptDays || left[len(left)-9] != "2026-03-12" || left[len(left)-1] != "2026-03-20" {
			t.Errorf("flat %v: left are %v", flatly, left)
		}
		if _, err := os.Stat(filepath.Join(dir, "2026-03-12")); err != nil {
			t.Error("a folder was removed of which records may be repeated:", err)
		}
	}
}

// silent is storage that does not answer.
type silent struct{ certmagic.Storage }

func (silent) Load(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Store(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// Storage that does not answer has failed after some time.
func TestSilentStorage(t *testing.T) {
	k := testKey(t, "k")
	synctest.Test(t, func(t *testing.T) {
		r, begun := &records{storage: silent{}}, time.Now()
		if _, err := r.load(t.Context(), k, day, begun); err == nil || time.Since(begun) != patience {
			t.Errorf("loading ended after %s: %v", time.Since(begun), err)
		}
		if err := r.store(k, &record{State: began, Since: begun}); err == nil || time.Since(begun) != 2*patience {
			t.Errorf("storing ended after %s: %v", time.Since(begun), err)
		}
	})
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

// The reference in the documents has each setting with its values and its default, in the order of
// the table, and no other.
func TestSettingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/directives.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(strings.ReplaceAll(string(text), `\|`, "¦"), "\n## once\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` ?(.*?) \\| (.*?) \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		documented = append(documented, strings.NewReplacer("`", "", "¦", "|").Replace(strings.Join(row[1:], ", ")))
	}
	for _, s := range settings {
		want = append(want, strings.ReplaceAll(strings.Join([]string{s.Name, s.Syntax, s.Usual}, ", "), "`", ""))
	}
	if !slices.Equal(documented, want) {
		t.Errorf("docs/directives.md has %q; expected %q", documented, want)
	}
}
