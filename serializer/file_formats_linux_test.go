package serializer

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// All versions 1.x share directories, so what they write there does not change. A test that
// fails here means that old and new processes could not work side by side.
func TestFormatsInDirectory(t *testing.T) {
	dir := t.TempDir()
	holder := enter(t, openAt(t, dir, 0), Arrival{Queue: "q_", Rule: Rule{Shared: true, Limit: 3}, Group: "{user}_"})
	defer holder.Leave()
	ledger := string([]byte{'o', 'r', 'd', 'e', 'r', 'l', 'y', '1'})
	for _, c := range []struct{ file, format string }{
		{guardFile, `^\d{20}\n\d{20} \d{20} [0-9a-f-]{36}\n$`},
		{ownerFiles + "*", `^orderly lock-file owner 1\npid: \d+\nhost: .*\nstarted: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\nprogram: /.*\n` +
			`shared: true\nlimit: 3\ngroup: "\{user\}_"\n\x00+` + ledger},
		{"q_*", `^orderly lock-file owner 1\n`},
	} {
		text := readOnly(t, dir, c.file)
		if !regexp.MustCompile(c.format).MatchString(text) {
			t.Errorf("%s is not %s: %.300q", c.file, c.format, text)
		}
		if start := strings.Index(text, ledger); c.file == ownerFiles+"*" && start != 8192 {
			t.Errorf("the ledger begins at byte %d", start)
		}
	}
	for _, c := range []struct{ got, want string }{
		{guardFile, ".orderly-guard"},
		{ownerFiles, ".orderly-owner-"},
		{evictMarker, ".orderly-evict-"},
		{insideName(1795313934897062), ".orderly-inside-00001795313934897062"},
		{pauseName("q_", Resumed), ".orderly-pause-00253402300799000000-q_"},
		{Ticket{Prefix: "q_", Stamp: 1795313934897062}.Name(), "q_00001795313934897062002000000000.0.0.0"},
	} {
		if c.got != c.want {
			t.Errorf("a name is %s; other versions know %s", c.got, c.want)
		}
	}
}

// A later version may add lines to an owner file and to the guard. This one keeps to the
// rules of the ticket and to the last number all the same.
func TestFormatsOfLaterVersion(t *testing.T) {
	dir := t.TempDir()
	later, now := openAt(t, dir, 0), openAt(t, dir, 0)
	reader := Arrival{Queue: "q_", Rule: Rule{Shared: true}}
	first := enter(t, later, reader)
	owner := theOnly(t, dir, ownerFiles+"*")
	text, err := os.ReadFile(owner)
	if err != nil {
		t.Fatal(err)
	}
	length := strings.IndexByte(string(text), 0)
	writeAt(t, owner, "colour: red\nweight\n", length)
	guard := readOnly(t, dir, guardFile)
	writeAt(t, filepath.Join(dir, guardFile), "more: lines\n", len(guard))

	second := enter(t, now, reader)
	if second.Token() <= first.Token() {
		t.Errorf("token %d follows %d", second.Token(), first.Token())
	}
	second.Leave()
	waiting := started(now, Arrival{Queue: "q_", Timeout: patience})
	stillWaits(t, waiting, "beside a reader of the later version")
	first.Leave()
	get(t, waiting).Leave()
}

// theOnly is the only file of a directory whose name matches a pattern.
func theOnly(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s are %v, error %v; expected one file", pattern, found, err)
	}
	return found[0]
}

func readOnly(t *testing.T, dir, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(theOnly(t, dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeAt(t *testing.T, file, text string, at int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(text), int64(at)); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
