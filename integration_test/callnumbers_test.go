package integration_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func TestCallNumbers(t *testing.T) {
	store := t.TempDir()
	seen := make(map[string]bool)
	collect := func(url string, n int) (run uint32) {
		for range n {
			text := ask(t, url)
			number, err := uniqueid.ParseCallNumber(text)
			if err != nil || seen[text] {
				t.Fatalf("%q: seen before: %t, %v", text, seen[text], err)
			}
			seen[text] = true
			run = number.Run()
		}
		return run
	}
	server, url := idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	first := collect(url, 20)
	server.Kill()
	_, url = idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	if second := collect(url, 20); second <= first {
		t.Errorf("run %d after run %d; want a greater one after a kill", second, first)
	}
	_, url = idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	if third := collect(url, 20); third <= first+1 {
		t.Errorf("run %d; want one of its own for each process", third)
	}
}

// A site that has already used call numbers continues above them: the documented ways to
// store the next run.
func TestCallNumbersStartAtRun(t *testing.T) {
	t.Run("in files", func(t *testing.T) {
		store := t.TempDir()
		next := filepath.Join(store, "orderly", "call_numbers", "next_run")
		if err := os.MkdirAll(filepath.Dir(next), 0o700); err != nil {
			t.Fatal(err)
		}
		testcaddy.WriteFile(t, next, "8453\n")
		wantFirstRun(t, store, 8453)
	})
	t.Run("by import", func(t *testing.T) {
		store, dir := t.TempDir(), t.TempDir()
		config, input := filepath.Join(dir, "caddy.json"), filepath.Join(dir, "runs.tar")
		testcaddy.WriteFile(t, config, `{"storage":{"module":"file_system","root":"`+store+`"}}`)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: "orderly/call_numbers/next_run", Mode: 0o600, Size: 5}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "8453\n"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		testcaddy.WriteFile(t, input, archive.String())
		if _, errs, code := testcaddy.Output(t, "storage", "import", "--config", config, "--input", input); code != 0 {
			t.Fatalf("caddy storage import: exit code %d: %s", code, errs)
		}
		wantFirstRun(t, store, 8453)
	})
}

func wantFirstRun(t *testing.T, store string, want uint32) {
	t.Helper()
	_, url := idsSite(t, "", "{http.request.call_number}", "STORE="+store)
	number, err := uniqueid.ParseCallNumber(ask(t, url))
	if err != nil || number.Run() != want || number.Sequence() != 0 {
		t.Errorf("the first number is of run %d, sequence %d, %v; expected run %d", number.Run(), number.Sequence(), err, want)
	}
}

// If the storage fails, requests that ask for a call number get none, the log says why,
// and nothing else is affected. When the storage works again, so do call numbers.
func TestCallNumbersWithoutStorage(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	next := filepath.Join(store, "orderly", "call_numbers", "next_run")
	if err := os.MkdirAll(filepath.Dir(next), 0o755); err != nil {
		t.Fatal(err)
	}
	testcaddy.WriteFile(t, next, "spilled coffee")
	server, url := idsSite(t, "", "{http.request.call_number}|{http.request.txid}", "STORE="+store)
	answer := ask(t, url)
	number, txid, _ := strings.Cut(answer, "|")
	if _, err := uniqueid.ParseTXID(txid); err != nil || number != "" {
		t.Errorf("got %q, want no call number, and a txid", answer)
	}
	wait.Eventually(t, "the log says why", func() error {
		if log := server.Log.String(); !regexp.MustCompile(`requests get no call number.*spilled coffee`).MatchString(log) {
			return fmt.Errorf("log:\n%s", log)
		}
		return nil
	})
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, "there are numbers again", func() error {
		if answer := ask(t, url); strings.HasPrefix(answer, "|") {
			return fmt.Errorf("got %q", answer)
		}
		return nil
	})
}
