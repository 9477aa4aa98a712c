package uniqueid

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestAutoNode(t *testing.T) {
	for _, tt := range []struct {
		name    string
		machine Machine
		node    string // empty if random
		reason  string
	}{
		{"a server", Machine{Hostname: "web1", Addrs: addrs("198.51.100.7"), PID: 4711}, "198.51.100.7 pid 4711", ""},
		{"a private address", Machine{Hostname: "web1", Addrs: addrs("10.1.2.3"), PID: 4711}, "10.1.2.3 pid 4711", ""},
		{"a mapped address", Machine{Hostname: "web1", Addrs: addrs("::ffff:10.1.2.3"), PID: 4711}, "10.1.2.3 pid 4711", ""},
		{"a bridge address outside of a container", Machine{Hostname: "web1", Addrs: addrs("172.17.0.1"), PID: 4711}, "172.17.0.1 pid 4711", ""},
		{"loopback first", Machine{Hostname: "web1", Addrs: addrs("127.0.1.1", "198.51.100.7"), PID: 4711}, "198.51.100.7 pid 4711", ""},
		{"loopback", Machine{Hostname: "web1", Addrs: addrs("127.0.1.1"), PID: 4711}, "",
			`the host's name "web1" resolves to 127.0.1.1, a loopback address that every machine has`},
		{"link-local", Machine{Hostname: "web1", Addrs: addrs("169.254.7.7"), PID: 4711}, "",
			`the host's name "web1" resolves to 169.254.7.7, which is not an address of one machine`},
		{"unspecified", Machine{Hostname: "web1", Addrs: addrs("0.0.0.0"), PID: 4711}, "",
			`the host's name "web1" resolves to 0.0.0.0, which is not an address of one machine`},
		{"IPv6 only", Machine{Hostname: "web1", Addrs: addrs("2001:db8::1"), PID: 4711}, "",
			`the host's name "web1" has no IPv4 address`},
		{"no address", Machine{Hostname: "web1", PID: 4711}, "",
			`the host's name "web1" has no IPv4 address`},
		{"a name that nobody knows", Machine{Hostname: "web1", Err: errors.New("lookup web1: no such host"), PID: 4711}, "",
			`the host's name does not resolve: lookup web1: no such host`},
		{"no name", Machine{Err: errors.New("hostname: permission denied"), PID: 4711}, "",
			`the host's name does not resolve: hostname: permission denied`},
		// Bug: containers with their host's network had the same node, and 6,010 IDs of
		// 120,000 were there twice.
		{"pid 1", Machine{Hostname: "web1", Addrs: addrs("198.51.100.7"), PID: 1}, "", "in a container, others can have the same address and pid"},
		{"a container with an init", Machine{Hostname: "c0ffee", Addrs: addrs("10.88.0.5"), PID: 7, Container: true}, "",
			"in a container, others can have the same address and pid"},
		{"a large pid", Machine{Hostname: "web1", Addrs: addrs("198.51.100.7"), PID: 1 << 22}, "",
			`pid 4194304 does not fit in 22 bits`},
	} {
		node, reason := AutoNode(tt.machine)
		if reason != tt.reason {
			t.Errorf("%s: reason is %q, want %q", tt.name, reason, tt.reason)
		}
		if tt.node == "" != node.Random() || tt.node != "" && node.String() != tt.node {
			t.Errorf("%s: node is %v, want %q", tt.name, node, tt.node)
		}
	}
}

func TestFixedNode(t *testing.T) {
	id := newUniqueIDs(Classic).New(time.Unix(1.7e9, 0))
	if id.Fields().Addr.String() != "192.0.2.7" || id.Fields().PID != 4711 || !id.Time().Equal(time.Unix(1.7e9, 0)) {
		t.Errorf("the ID says %v, %v, %v", id.Fields().Addr, id.Fields().PID, id.Time())
	}
	if node := RandomNode(); node == RandomNode() || !node.Random() {
		t.Errorf("a random node is %v", node)
	}
	if got := RandomNode(seeded()).String(); got != RandomNode(seeded()).String() {
		t.Errorf("two nodes of the same randomness differ, one is %s", got)
	}
}
