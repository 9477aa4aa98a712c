package serializer

import (
	"net/netip"
	"testing"
)

func TestParseTicket(t *testing.T) {
	for _, test := range []struct {
		name   string
		prefix string // of the ticket, where there is one
		stamp  uint64
		client string
		ok     bool
	}{
		// The examples of mod_serializer's document: the family is that of the
		// socket, so an IPv4 address may follow 010.
		{"a_0000160969386537851501000036794192.168.0.1", "a_", 1609693865378515, "192.168.0.1:36794", true},
		{"a_0000160969386565001601000036850192.168.0.1", "a_", 1609693865650016, "192.168.0.1:36850", true},
		{"a_0000160969386537851500200036794192.168.0.1", "a_", 1609693865378515, "192.168.0.1:36794", true},
		{"0000160969386537851501000000080::1", "", 1609693865378515, "[::1]:80", true},
		{"a_b_0000160969386537851501000036794fe80::1", "a_b_", 1609693865378515, "[fe80::1]:36794", true},
		{"a_000000160969386537851501000036794192.168.0.1", "a_00", 1609693865378515, "192.168.0.1:36794", true},
		{"a_10000160969386537851500200036794192.168.0.1", "a_1", 1609693865378515, "192.168.0.1:36794", true},

		{name: ""},
		{name: "a_"},
		{name: ".orderly-guard"},
		{name: "a_0000160969386537851500200036794"},             // no address
		{name: "a_0000160969386537851500200036794192.168.0"},    // half an address
		{name: "a_0000160969386537851500200036794192.168.0.1x"}, // more than an address
		{name: "a_0000160969386537851500200036794fe80::1%eth0"}, // a zone
		{name: "a_00001609693865378515002000367941::2"},         // family of IPv4
		{name: "a_0000160969386537851500300036794192.168.0.1"},  // family 003
		{name: "a_0000160969386537851500200066000192.168.0.1"},  // port 66000
		{name: "a_0001609693865378515100200036794192.168.0.1"},  // three zeros: the year 2480
		{name: "a_00001609693865x7851500200036794192.168.0.1"},
	} {
		got, err := ParseTicket(test.name)
		if !test.ok {
			if err == nil {
				t.Errorf("%q: read as %+v", test.name, got)
			}
			continue
		}
		want := Ticket{Prefix: test.prefix, Stamp: test.stamp, Client: netip.MustParseAddrPort(test.client)}
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", test.name, got, err, want)
		}
	}
}
