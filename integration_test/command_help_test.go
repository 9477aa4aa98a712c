//go:build unix

package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: text in angle brackets was missing from the man pages, which are made from
// Markdown.
func TestManPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, errs, code := testcaddy.Output(t, "manpage", "--directory", dir); code != 0 {
		t.Fatalf("caddy manpage: exit code %d: %s", code, errs)
	}
	for page, synopsis := range map[string]string{
		"caddy-serialize":        `caddy serialize queues|evict|pause|resume [flags]`,
		"caddy-serialize-queues": `caddy serialize queues [--prefix P] [--json] [flags]`,
		"caddy-serialize-evict":  `caddy serialize evict --prefix P [--force] TOKEN [flags]`,
		"caddy-serialize-pause":  `caddy serialize pause --prefix P [--for 10m | --until T] [--wait] [flags]`,
		"caddy-serialize-resume": `caddy serialize resume --prefix P [flags]`,
		"caddy-ids":              `caddy ids new|decode [flags]`,
		"caddy-ids-new":          `caddy ids new [--scheme `,
		"caddy-ids-decode":       `caddy ids decode [ID...] [--json] [flags]`,
	} {
		text, err := os.ReadFile(filepath.Join(dir, page+".8"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(strings.ReplaceAll(string(text), `\&`, ""), synopsis) {
			t.Errorf("%s has no %q:\n%s", page, synopsis, text)
		}
	}
}

// Bug: an unknown subcommand printed the help, and the exit code was 0.
func TestUnknownSubcommand(t *testing.T) {
	t.Parallel()
	for command, says := range map[string]string{
		"ids":       `unknown command "make" for "caddy ids"`,
		"serialize": `unknown command "make" for "caddy serialize"`,
	} {
		out, errs, code := testcaddy.Output(t, command, "make")
		if code != 1 || !strings.Contains(errs, says) || out != "" {
			t.Errorf("caddy %s make: exit code %d, %s%s; expected %q", command, code, out, errs, says)
		}
		if out, _, code = testcaddy.Output(t, command); code != 0 || !strings.Contains(out, "Available Commands") {
			t.Errorf("caddy %s: exit code %d: %s; expected the help", command, code, out)
		}
	}
}

// Bug: there was no completion for values.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const noFiles = ":4"
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ids", ""}, []string{"new\t", "decode\t", noFiles}},
		{[]string{"ids", "new", "--scheme", ""}, []string{"txid", "unique_id", "sharded_id", "call_number", noFiles}},
		{[]string{"ids", "decode", ""}, []string{noFiles}},
	} {
		out, errs, code := testcaddy.Output(t, append([]string{"__complete"}, c.args...)...)
		for _, want := range c.want {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("completing %q: exit code %d, %s%s; expected %q", c.args, code, out, errs, want)
			}
		}
	}
}
