package serializer

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Reading the name of any file gives a ticket or an error. The name made of
// that ticket reads as the same ticket.
func FuzzParseTicket(f *testing.F) {
	f.Add("a_0000160969386537851501000036794192.168.0.1")
	f.Add("0000160969386537851500200036794::")
	f.Add("a_00000000160969386537851500200036794192.168.0.1")
	f.Add("\xff0000999999999999999901000065535fe80::1")
	f.Add("a_00001609693865378515002000367940000160969386537851500200036794192.168.0.1")
	f.Fuzz(func(t *testing.T, name string) {
		ticket, err := ParseTicket(name)
		if err != nil {
			return
		}
		if ticket.Stamp < minStamp || ticket.Stamp > maxStamp || !strings.HasPrefix(name, ticket.Prefix) {
			t.Errorf("%q is read as %+v", name, ticket)
		}
		again, err := ParseTicket(ticket.Name())
		if err != nil || again != ticket {
			t.Errorf("%q is read as %+v, and %q as %+v, error %v", name, ticket, ticket.Name(), again, err)
		}
	})
}

// A prefix is recovered from the name of a lock file, whatever it is, unless it
// is one of those that are refused.
func FuzzTicketName(f *testing.F) {
	f.Add("a_", uint64(minStamp), []byte{192, 168, 0, 1}, uint16(36794))
	f.Add("", uint64(maxStamp), make([]byte, 16), uint16(0))
	f.Add("a_0000", uint64(1609693865378515), []byte{}, uint16(1))
	f.Add("a_0000160969386537851500200036794", uint64(1609693865378515), []byte{1, 2, 3, 4}, uint16(1))
	f.Add("a_00001609693865378515002000367941.2.3.", uint64(1609693865378515), []byte{1, 2, 3, 4}, uint16(1))
	f.Add("a_0000160969386537851501000036794fe80:", uint64(1609693865378515), []byte{1, 2, 3, 4}, uint16(1))
	f.Fuzz(func(t *testing.T, prefix string, stamp uint64, ip []byte, port uint16) {
		if AmbiguousQueueName(prefix) {
			return
		}
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			addr = netip.IPv4Unspecified()
		}
		want := Ticket{prefix, minStamp + stamp%(maxStamp-minStamp+1), netip.AddrPortFrom(addr.Unmap(), port)}
		got, err := ParseTicket(want.Name())
		if err != nil || got != want {
			t.Errorf("%q is read as %+v, error %v, want %+v", want.Name(), got, err, want)
		}
	})
}

// Any text makes a safe name, and different texts make different names.
func FuzzQueueName(f *testing.F) {
	f.Add("a_", "a")
	f.Add("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd")
	f.Add(strings.Repeat("x", 200), strings.Repeat("x", 201))
	f.Add(strings.Repeat("/", 60), strings.Repeat("%2F", 60))
	f.Add("a00001", "a0000%31")
	f.Add(guardFile, "%2Eorderly-guard")
	f.Add("\x00\n\xff", "")
	f.Add("\x800000", "") // bug: an escape's own zero made it ambiguous
	f.Fuzz(func(t *testing.T, a, b string) {
		name := QueueName(a)
		if len(name) > maxQueueName || AmbiguousQueueName(name) || strings.HasPrefix(name, ownFiles) {
			t.Errorf("QueueName(%q) = %q", a, name)
		}
		for _, c := range []byte(name) {
			if c < ' ' || c > '~' || c == '/' || c == '\\' {
				t.Errorf("QueueName(%q) = %q", a, name)
			}
		}
		if a != b && name == QueueName(b) {
			t.Errorf("%q and %q are both queue %q", a, b, name)
		}
	})
}

// An owner file may hold anything: it is read, or refused.
func FuzzParseOwner(f *testing.F) {
	f.Add(self(ownerKind{Rule{Shared: true, Limit: 3}, "user_{id}_"}, time.Now()).text())
	f.Add([]byte(ownerMagic))
	f.Add([]byte(ownerMagic + "\npid: 12345678901234567890\n"))
	f.Add([]byte(ownerMagic + "\nlimit: -1\nunknown: x\n:\n\n"))
	f.Add([]byte("not " + ownerMagic))
	f.Fuzz(func(t *testing.T, text []byte) {
		owner, err := parseOwner(text)
		if err != nil {
			return
		}
		again, err := parseOwner(owner.text())
		if err != nil || again.PID != owner.PID || again.Rule != owner.Rule || again.Host != owner.Host ||
			!again.Started.Equal(owner.Started.Truncate(time.Second)) {
			t.Errorf("%q is read as %+v, and then as %+v, error %v", text, owner, again, err)
		}
	})
}

// The engine does not rely on its callers to keep lock files inside the
// directory.
func TestQueueThatCannotBeNamed(t *testing.T) {
	e := openFile(t, t.TempDir())
	defer e.Close()
	for _, queue := range []string{"../a_", "a/b_", `a\b_`, "a\x00", ownerFiles + "x", "a_00001"} {
		_, err := e.Enter(t.Context(), arrival(queue))
		wantRefusal(t, err, ReasonStorage, ErrStorage)
		enter(t, e, arrival(QueueName(queue))).Leave()
	}
}
