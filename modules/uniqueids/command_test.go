package uniqueids

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
)

func TestCommand(t *testing.T) {
	usual := caddy.DefaultStorage
	defer func() { caddy.DefaultStorage = usual }()
	caddy.DefaultStorage = &certmagic.FileStorage{Path: t.TempDir()}
	for _, test := range []struct {
		args   []string
		stdin  string
		fails  bool
		stdout string // a pattern
		stderr string // a pattern
	}{
		{[]string{"new"}, "", false, `^[0-9a-v]{20}\n$`, ``},
		{[]string{"new", "-n", "3", "--scheme", "unique_id"}, "", false, `^([A-Za-z0-9@-]{19}\n){3}$`, ``},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "4"}, "", false, `^[0-3][0-9a-f]{17}\n$`, ``},
		{[]string{"new", "--scheme", "call_number", "-n", "2"}, "", false, `^00000000\n00bVJxYW\n$`, ``},
		{[]string{"new", "--scheme", "uuid"}, "", true, `^$`, `--scheme "uuid": expected one of txid, unique_id, sharded_id, call_number, uuid_v7`},
		{[]string{"new", "--scheme", "uuid_v7", "-n", "2"}, "", false, `^([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n){2}$`, ``},
		{[]string{"decode", "00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03"}, "", false,
			`scheme\s+traceparent\n\s+time\s+2023-11-14T22:13:20.123Z(.|\n)*txid\s+cbpvimguo4hkaps9lf6g`, ``},
		{[]string{"decode", "1000004aa5c7f2c2d48"}, "", false, `has 2 readings(.|\n)*sharded_id(.|\n)*unique_id`, ``},
		{[]string{"decode", "--json", "--", "------------------8"}, "", false, `"layout":"classic"`, ``},
		{[]string{"decode"}, "------------------8\n", false, `layout\s+classic`, ``},
		{[]string{"new", "--scheme", "sharded_id", "--shards", "0"}, "", true, `^$`, `--shards 0`},
		{[]string{"new", "-n", "0"}, "", true, `^$`, `--number 0: expected a whole number, 1 or more`},
		// Bug: only on standard input, spaces around an ID were no part of it.
		{[]string{"decode", " cbpvimguo4hkaps9lf6g\r"}, "", false,
			`^cbpvimguo4hkaps9lf6g\n\s+scheme\s+txid\n\s+time\s+2023-11-14T22:13:20.123Z\n\s+random\s+0123456789abcd`, ``},
		{[]string{"decode"}, "03KOE60u\n\nnonsense\n2VznWE2i\n", true, `8452(.|\n)*run\s+99\n\s+sequence\s+345`, `nonsense(.|\n)*1 of the IDs could not be read`},
		// Bug: nothing was read after a line of 70,000 characters.
		{[]string{"decode"}, strings.Repeat("x", 70_000) + "\n2VznWE2i", true, `sequence\s+345`, `^"x{64}"(.|\n)*1 of the IDs could not be read`},
		// Bug: what a future version of traceparent may carry came through as it is.
		{[]string{"decode", "--json", "cc-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-01-\x1b\x7f\u009b2J\u202e\U000e0001\u00e9"}, "", false,
			`^{"id":"cc-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-01-\\u001b\\u007f\\u009b2J\\u202e\\udb40\\udc01\x{e9}","readings":.*}\n$`, ``},
		{[]string{"decode", "--json"}, "2VznWE2i\n", false, `^{"id":"2VznWE2i","readings":\[{.*"run":99,"sequence":345.*\]}\n$`, ``},
	} {
		root, ids := &cobra.Command{Use: "caddy", SilenceUsage: true}, &cobra.Command{Use: "ids"}
		command.Group(ids, idsNewCommand(), idsDecodeCommand())
		root.AddCommand(ids)
		var stdout, stderr strings.Builder
		root.SetArgs(append([]string{"ids"}, test.args...))
		root.SetIn(strings.NewReader(test.stdin))
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		err := root.ExecuteContext(t.Context())
		if fails := err != nil; fails != test.fails || !regexp.MustCompile(test.stdout).MatchString(stdout.String()) ||
			!regexp.MustCompile(test.stderr).MatchString(stderr.String()) {
			t.Errorf("%q: error %v, printed %q, complained %q; want %t, %s, %s",
				test.args, err, &stdout, &stderr, test.fails, test.stdout, test.stderr)
		}
	}
}
