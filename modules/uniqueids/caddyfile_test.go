package uniqueids

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// What is wrong in a block is named, with the line.
func TestCaddyfileErrors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"layout", `layout: no value; expected classic, threaded or modern`},
		{"layout short", `layout "short": expected classic, threaded or modern`},
		{"layout classic modern", `layout: unexpected "modern" after "classic"; expected classic, threaded or modern`},
		{"node", `node: no value; expected auto, random or an IPv4 address`},
		{"node web1", `node "web1": expected auto, random or an IPv4 address`},
		{"node ::1", `node "::1": expected auto, random or an IPv4 address`},
		{"shards", `shards: no value; expected a whole number, 1 or more`},
		{"shards many", `shards "many": expected a whole number, 1 or more`},
		{"shards 0", `shards 0: expected a whole number, 1 or more`},
		{"shards 100000000000", `shards 100000000000: expected a whole number from 1 to 1000000`},
		{"trust", `trust: no value; expected the name of a request header field`},
		{`trust "X Request Id"`, `trust "X Request Id": expected the name of a request header field, such as X-Request-Id`},
	} {
		err := new(Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("unique_ids {\n\t" + tt.line + "\n}"))
		if want := tt.want + ", at Testfile:2"; err == nil || err.Error() != want {
			t.Errorf("%s: error is %v, want %s", tt.line, err, want)
		}
	}
}
