//go:build unix

package integration_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func TestIDsCommand(t *testing.T) {
	for _, test := range []struct {
		args   []string
		stdin  string
		code   int
		stdout string // a pattern
		stderr string // a pattern
	}{
		{[]string{"new"}, "", 0, `^[0-9a-v]{20}\n$`, ``},
		{[]string{"new", "-n", "3", "--scheme", "unique_id"}, "", 0, `^([A-Za-z0-9@-]{19}\n){3}$`, ``},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "4"}, "", 0, `^[0-3][0-9a-f]{17}\n$`, ``},
		{[]string{"new", "--scheme", "call_number", "-n", "2"}, "", 0, `^00000000\n00bVJxYW\n$`, ``},
		{[]string{"new", "--scheme", "uuid"}, "", 1, `^$`, `--scheme "uuid": expected one of txid, unique_id, sharded_id, call_number, uuid_v7`},
		{[]string{"new", "--scheme", "uuid_v7", "-n", "2"}, "", 0, `^([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n){2}$`, ``},
		{[]string{"decode", "00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03"}, "", 0,
			`scheme\s+traceparent\n\s+time\s+2023-11-14T22:13:20.123Z(.|\n)*txid\s+cbpvimguo4hkaps9lf6g`, ``},
		{[]string{"decode", "018bcfe5687b7048b456789abcd54321"}, "", 0, `has 2 readings(.|\n)*uuid_v7(.|\n)*trace_id`, ``},
		// Bug: with another scheme, --shards was ignored.
		{[]string{"new", "--shards", "4"}, "", 1, `^$`, `--shards is for --scheme sharded_id; a txid has no shard`},
		// Bug: the error for an ID that begins with a hyphen said only that the
		// flag is unknown.
		{[]string{"decode", "------------------8"}, "", 1, `^$`, `begins with a hyphen write --, as in: caddy ids decode -- ID`},
		{[]string{"decode", "--json", "--", "------------------8"}, "", 0, `"layout":"classic"`, ``},
		{[]string{"decode"}, "------------------8\n", 0, `layout classic`, ``},
		{[]string{"new", "-n", "0"}, "", 1, `^$`, `-n 0: expected 1 or more`},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "0"}, "", 1, `^$`, `--shards 0`},
		{[]string{"decode", "cbpvimguo4hkaps9lf6g"}, "", 0, `scheme\s+txid\n\s+time\s+2023-11-14T22:13:20.123Z\n\s+random\s+0123456789abcd`, ``},
		// Bug: only on standard input, spaces around an ID were no part of it.
		{[]string{"decode", " cbpvimguo4hkaps9lf6g\r"}, "", 0, `^cbpvimguo4hkaps9lf6g\n`, ``},
		{[]string{"decode"}, "03KOE60u\n\nnonsense\n2VznWE2i\n", 1, `8452(.|\n)*sequence\s+345`, `nonsense(.|\n)*1 of the IDs could not be read`},
		// Bug: nothing was read after a line of 70,000 characters.
		{[]string{"decode"}, strings.Repeat("x", 70_000) + "\n2VznWE2i", 1, `sequence\s+345`, `^"x{64}"\.\.\.(.|\n)*1 of the IDs could not be read`},
		// Bug: what a future version of traceparent may carry came through as it is.
		{[]string{"decode", "--json", "cc-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-01-\x1b\x7f\u009b2J\u202e\U000e0001\u00e9"}, "", 0,
			`^{"id":"cc-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-01-\\u001b\\u007f\\u009b2J\\u202e\\udb40\\udc01\x{e9}","readings":.*}\n$`, ``},
		{[]string{"decode", "--json"}, "2VznWE2i\n", 0, `^{"id":"2VznWE2i","readings":\[{.*"run":99,"sequence":345.*\]}\n$`, ``},
	} {
		cmd := testcaddy.Command(t, append([]string{"ids"}, test.args...)...)
		cmd.Stdin = strings.NewReader(test.stdin)
		stdout, stderr, code := testcaddy.OutputOf(t, cmd)
		if code != test.code || !regexp.MustCompile(test.stdout).MatchString(stdout) ||
			!regexp.MustCompile(test.stderr).MatchString(stderr) {
			t.Errorf("%q: exit code %d, printed %q, complained %q; want %d, %s, %s",
				test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
		}
	}
}

// IDs of the real mod_unique_id of Debian's Apache, received over HTTP, decode as the
// modern layout with the time of the request.
func TestDecodeApachesIDs(t *testing.T) {
	apache := testcaddy.Need(t, "apache2", "apt-get install apache2")
	addr, dir := testprocess.FreeAddr(t), t.TempDir()
	config := filepath.Join(dir, "apache2.conf")
	testcaddy.WriteFile(t, config, `
ServerRoot /usr/lib/apache2
ServerName localhost
Listen `+addr+`
PidFile `+dir+`/pid
DefaultRuntimeDir `+dir+`
ErrorLog `+dir+`/error.log
DocumentRoot `+dir+`
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule unique_id_module modules/mod_unique_id.so
LoadModule headers_module modules/mod_headers.so
User www-data
Group www-data
Header always set X-Unique-Id "%{UNIQUE_ID}e"
`)
	testprocess.Start(t, exec.CommandContext(t.Context(), apache, "-X", "-f", config))
	var id string
	wait.Eventually(t, "apache answers", func() error {
		a := <-testcaddy.Send(t, http.MethodGet, "http://"+addr, "")
		id = a.Header.Get("X-Unique-Id")
		return a.Err
	})
	readings, err := uniqueid.Decode(id)
	check(t, err)
	// Apache before 2.4.47 used another alphabet, and an ID with a "-" but no "_"
	// may be of either.
	if !slices.ContainsFunc(readings, func(d uniqueid.Decoded) bool {
		age := time.Since(d.Time).Seconds()
		return d.Layout == "modern" && age >= -1 && age <= 60
	}) {
		t.Errorf("%q, made just now, reads as %+v", id, readings)
	}
}
