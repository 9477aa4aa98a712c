//go:build unix

package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// callNumbers starts a server that answers with call numbers, whose runs are in a store.
func callNumbers(t *testing.T, store, more string) *caddy {
	t.Helper()
	return start(t, setup{global: "storage file_system " + store, site: "unique_ids\nrespond {http.request.call_number}" + more})
}

// callNumber gets a call number.
func (c *caddy) callNumber() uniqueid.CallNumber {
	c.t.Helper()
	number, err := uniqueid.ParseCallNumber(c.ask())
	check(c.t, err)
	return number
}

// storeRun stores the next run as documented.
func storeRun(t *testing.T, store, text string) (file string) {
	t.Helper()
	file = filepath.Join(store, "orderly", "call_numbers", "next_run")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	testcaddy.WriteFile(t, file, text)
	return file
}

// A site that has already used call numbers continues above them: the documented ways to
// store the next run.
func TestCallNumbersStartAtRun(t *testing.T) {
	t.Parallel()
	files, imported, dir := testcaddy.TempDir(t), testcaddy.TempDir(t), t.TempDir()
	storeRun(t, files, "8453\n")
	storeRun(t, dir, "8453\n")
	config, input := filepath.Join(dir, "caddy.json"), filepath.Join(dir, "runs.tar")
	testcaddy.WriteFile(t, config, `{"storage":{"module":"file_system","root":"`+imported+`"}}`)
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-cf", input, "orderly/call_numbers/next_run").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if _, errs, code := testcaddy.Output(t, "storage", "import", "--config", config, "--input", input); code != 0 {
		t.Fatalf("caddy storage import: exit code %d: %s", code, errs)
	}
	for _, store := range []string{files, imported} {
		if number := callNumbers(t, store, "").callNumber(); number.Run() != 8453 || number.Sequence() != 0 {
			t.Errorf("the first number is of run %d, sequence %d; expected run 8453", number.Run(), number.Sequence())
		}
	}
}

// If the storage fails, requests that ask for a call number get none, the log says why,
// and nothing else is affected. When the storage works again, so do call numbers.
func TestCallNumbersWithoutStorage(t *testing.T) {
	t.Parallel()
	store := testcaddy.TempDir(t)
	next := storeRun(t, store, "spilled coffee")
	c := callNumbers(t, store, "|{http.request.txid}")
	number, txid, _ := strings.Cut(c.ask(), "|")
	if _, err := uniqueid.ParseTXID(txid); err != nil || number != "" {
		t.Errorf("got %q and txid %q, want no call number, and a txid", number, txid)
	}
	c.awaitEntry("the log says why", func(e entry) bool {
		return strings.Contains(e.Text("msg"), "requests get no call number") && strings.Contains(e.Text("error"), next+": it is damaged")
	})
	check(t, os.Remove(next))
	wait.Until(t, "there are numbers again", func() bool { return !strings.HasPrefix(c.ask(), "|") })
}
