package etcd

import (
	"net/netip"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// All versions 1.x share a namespace, so what they write there does not change. A test that
// fails here means that old and new processes could not work side by side.
func TestFormatsInEtcd(t *testing.T) {
	const keys = keyspace("orderly/")
	since := time.Date(2026, 11, 20, 8, 15, 30, 123456000, time.UTC)
	ticket := keys.ticket("a/b", 0x32698d1f3a6a4b07, 1)
	for _, c := range []struct{ what, got, want string }{
		{"a ticket's key", ticket, "orderly/a%2Fb/32698d1f3a6a4b07-1"},
		{"a mark's key", keys.mark(ticket), "orderly/!left/a%2Fb/32698d1f3a6a4b07-1"},
		{"an eviction's key", keys.evictions(0x7abc) + "17", "orderly/!evict/7abc/17"},
		{"a pause's key", keys.pause("a/b"), "orderly/!pause/a%2Fb"},
		{"a mark", mark{17, true}.String(), "left 17"},
		{"another mark", mark{17, false}.String(), "gone 17"},
		{"an ordinary ticket", newRecord("pid 1 on web1", serializer.Arrival{Client: netip.MustParseAddrPort("192.168.0.1:36794"), Rule: serializer.Rule{Limit: 1}}, since),
			`{"owner":"pid 1 on web1","client":"192.168.0.1:36794","since":"2026-11-20T08:15:30.123456Z","limit":1}`},
		{"a ticket with everything", newRecord("pid 1 on web1", serializer.Arrival{Rule: serializer.Rule{Shared: true, Limit: 3}, Group: "{user}_", MaxWaiting: 7}, since),
			`{"owner":"pid 1 on web1","since":"2026-11-20T08:15:30.123456Z","shared":true,"limit":3,"group":"{user}_","max":7}`},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s; other versions know %s", c.what, c.got, c.want)
		}
	}
}

// A later version may add fields. This one keeps to the rules of the ticket all the same.
func TestFormatsOfLaterVersion(t *testing.T) {
	r := parseRecord([]byte(`{"owner":"pid 1 on web1","colour":{"red":1},"shared":true,"limit":3,"group":"g_","max":7,"inside":true}`))
	if want := (record{Owner: "pid 1 on web1", Shared: true, Limit: 3, Group: "g_", Max: 7, Inside: true}); r != want {
		t.Errorf("the record is read as %+v", r)
	}
	p, err := parsePause([]byte(`{"until":"2026-11-22T06:32:10Z","for_ms":120000,"owner":"pid 1 on web1","colour":"red"}`))
	if err != nil || p.length() != 2*time.Minute || p.Until.Unix() != 1795329130 {
		t.Errorf("the pause is read as %+v, error %v", p, err)
	}
}
