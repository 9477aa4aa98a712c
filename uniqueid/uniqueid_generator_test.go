package uniqueid

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

func TestUniqueIDBlocks(t *testing.T) {
	arrival := time.Unix(1.7e9, 999)
	block := func(id UniqueID) int { return int(id.Fields().Extra) + int(id.Fields().Thread) } // a layout has one of them
	for layout := range layouts {
		gen := newUniqueIDs(Layout(layout))
		first := gen.New(arrival)
		keys := []key{uniqueIDKey(first)}
		seen := make(map[int]bool)
		for range 200_000 {
			id := gen.New(arrival)
			place := block(id)<<16 | int(id.Fields().Counter-first.Fields().Counter)
			if place > 300_000 || seen[place] || id.Time().Unix() != 1.7e9 {
				t.Fatalf("%v: place %d, seen before %t, time %v", Layout(layout), place, seen[place], id.Time())
			}
			seen[place] = true
			keys = append(keys, uniqueIDKey(id))
		}
		wantDistinct(t, keys)
		if next := gen.New(arrival.Add(time.Second)); block(next) != 0 {
			t.Errorf("%v: the next second starts in block %d", Layout(layout), block(next))
		}
	}
}

func TestUniqueIDCounterStartsAtRandom(t *testing.T) {
	starts := map[uint16]bool{}
	for range 20 {
		starts[newUniqueIDs(Classic).New(time.Now()).Fields().Counter] = true
	}
	if len(starts) < 15 {
		t.Errorf("20 generators started at %d counters", len(starts))
	}
}

// A second that is full runs over into the next, and no further.
func TestUniqueIDFullSecond(t *testing.T) {
	gen := newUniqueIDs(Classic)
	arrival := time.Unix(1.7e9, 0)
	gen.New(arrival)
	gen.begun(1.7e9).taken.Store(1<<(blockBits+layouts[gen.base.layout].extra) - 200)
	var keys []key
	for range 1000 {
		id := gen.New(arrival)
		if late := id.Time().Sub(arrival); late != 0 && late != time.Second || len(keys) > 300 && late == 0 {
			t.Errorf("ID %d says %v", len(keys), id.Time())
		}
		keys = append(keys, uniqueIDKey(id))
	}
	wantDistinct(t, keys)
}

// A second that is forgotten never begins anew, however the clock is set.
func TestUniqueIDClock(t *testing.T) {
	start := time.Unix(1.7e9, 0)
	gen := newUniqueIDs(Classic)
	var keys []key
	for _, tt := range []struct {
		name    string
		arrival time.Duration // after start
		want    time.Duration // of the ID, after start
	}{
		{"start", 0, 0},
		{"a second", 10 * time.Second, 10 * time.Second},
		{"back an hour", -time.Hour, -time.Hour},
		{"a minute after that", -59 * time.Minute, -59 * time.Minute},
		{"the first time again", 0, 0},
		{"the oldest second", -4085 * time.Second, -4085 * time.Second},
		{"too late", -4086 * time.Second, -4085 * time.Second},
		{"back a day", -24 * time.Hour, -4085 * time.Second},
		{"forward a day", 24 * time.Hour, 24 * time.Hour},
		{"the first time, not forgotten yet", 0, 0},
		{"in its place", 21 * 4096 * time.Second, 21 * 4096 * time.Second},
		{"the first time, forgotten", 0, 24*time.Hour - 4095*time.Second},
	} {
		for range 70_000 {
			id := gen.New(start.Add(tt.arrival))
			if got := id.Time().Sub(start); got != tt.want {
				t.Fatalf("%s: time is %v after the start, want %v", tt.name, got, tt.want)
			}
			keys = append(keys, uniqueIDKey(id))
		}
	}
	wantDistinct(t, keys)
}

func TestBeforeTheEpoch(t *testing.T) {
	clock := newFakeClock(0)
	clock.set(time.Unix(-1e9, 0))
	id, txid := newUniqueIDs(Classic).New(time.Time{}), NewTXIDGenerator(WithClock(clock)).New()
	if id.Time().Unix() != 0 || !txid.Time().Equal(time.Unix(0, 0)) {
		t.Errorf("times are %v and %v", id.Time(), txid.Time())
	}
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestAutoNode(t *testing.T) {
	for _, tt := range []struct {
		name    string
		machine machine
		node    string // empty if random
		reason  string
	}{
		{"a server", machine{hostname: "web1", addrs: addrs("198.51.100.7"), pid: 4711}, "198.51.100.7 pid 4711", ""},
		{"a private address", machine{hostname: "web1", addrs: addrs("10.1.2.3"), pid: 4711}, "10.1.2.3 pid 4711", ""},
		{"a mapped address", machine{hostname: "web1", addrs: addrs("::ffff:10.1.2.3"), pid: 4711}, "10.1.2.3 pid 4711", ""},
		{"a bridge address outside of a container", machine{hostname: "web1", addrs: addrs("172.17.0.1"), pid: 4711}, "172.17.0.1 pid 4711", ""},
		{"loopback first", machine{hostname: "web1", addrs: addrs("127.0.1.1", "198.51.100.7"), pid: 4711}, "198.51.100.7 pid 4711", ""},
		{"loopback", machine{hostname: "web1", addrs: addrs("127.0.1.1"), pid: 4711}, "",
			`the host's name "web1" has no IPv4 address of this machine alone, only [127.0.1.1]`},
		{"link-local", machine{hostname: "web1", addrs: addrs("169.254.7.7"), pid: 4711}, "",
			`the host's name "web1" has no IPv4 address of this machine alone, only [169.254.7.7]`},
		{"unspecified", machine{hostname: "web1", addrs: addrs("0.0.0.0"), pid: 4711}, "",
			`the host's name "web1" has no IPv4 address of this machine alone, only [0.0.0.0]`},
		{"IPv6 only", machine{hostname: "web1", addrs: addrs("2001:db8::1"), pid: 4711}, "",
			`the host's name "web1" has no IPv4 address of this machine alone, only [2001:db8::1]`},
		{"no address", machine{hostname: "web1", pid: 4711}, "",
			`the host's name "web1" has no IPv4 address of this machine alone, only []`},
		{"a name that nobody knows", machine{hostname: "web1", err: errors.New("lookup web1: no such host"), pid: 4711}, "",
			`the host's name does not resolve: lookup web1: no such host`},
		{"no name", machine{err: errors.New("hostname: permission denied"), pid: 4711}, "",
			`the host's name does not resolve: hostname: permission denied`},
		// Bug: containers with their host's network had the same node, and 6,010 IDs of
		// 120,000 were there twice.
		{"pid 1", machine{hostname: "web1", addrs: addrs("198.51.100.7"), pid: 1}, "", "in a container, others can have the same address and pid"},
		{"a container with an init", machine{hostname: "c0ffee", addrs: addrs("10.88.0.5"), pid: 7, container: true}, "",
			"in a container, others can have the same address and pid"},
		{"a large pid", machine{hostname: "web1", addrs: addrs("198.51.100.7"), pid: 1 << 22}, "",
			`pid 4194304 does not fit in 22 bits`},
	} {
		node, reason := tt.machine.node()
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
