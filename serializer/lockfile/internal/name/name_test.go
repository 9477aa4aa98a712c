package name

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		file   string
		prefix string // of the ticket, where there is one
		number uint64
		client string
	}{
		// The examples of mod_serializer's document: the family is that of the socket, so
		// an IPv4 address may follow 010.
		{"a_0000160969386537851501000036794192.168.0.1", "a_", 1609693865378515, "192.168.0.1:36794"},
		{"a_0000160969386565001601000036850192.168.0.1", "a_", 1609693865650016, "192.168.0.1:36850"},
		{"a_0000160969386537851500200036794192.168.0.1", "a_", 1609693865378515, "192.168.0.1:36794"},
		{"0000160969386537851501000000080::1", "", 1609693865378515, "[::1]:80"},
		{"a_b_0000160969386537851501000036794fe80::1", "a_b_", 1609693865378515, "[fe80::1]:36794"},
		{"a_000000160969386537851501000036794192.168.0.1", "a_00", 1609693865378515, "192.168.0.1:36794"},
		{"a_10000160969386537851500200036794192.168.0.1", "a_1", 1609693865378515, "192.168.0.1:36794"},

		{file: ""},
		{file: "a_"},
		{file: Guard},
		{file: "a_0000160969386537851500200036794"},             // no address
		{file: "a_0000160969386537851500200036794192.168.0"},    // half an address
		{file: "a_0000160969386537851500200036794192.168.0.1x"}, // more than an address
		{file: "a_0000160969386537851500200036794fe80::1%eth0"}, // a zone
		{file: "a_00001609693865378515002000367941::2"},         // family of IPv4
		{file: "a_0000160969386537851500300036794192.168.0.1"},  // family 003
		{file: "a_0000160969386537851500200066000192.168.0.1"},  // port 66000
		{file: "a_0001609693865378515100200036794192.168.0.1"},  // three zeros: the year 2480
		{file: "a_00001609693865x7851500200036794192.168.0.1"},
		{file: "a_0000+60969386537851500200036794192.168.0.1"},
	} {
		got, err := Parse(test.file)
		if test.client == "" {
			if err == nil {
				t.Errorf("%q: read as %+v", test.file, got)
			}
			continue
		}
		want := Name{test.prefix, test.number, netip.MustParseAddrPort(test.client)}
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", test.file, got, err, want)
		}
	}
}

// Reading the name of any file gives a ticket or an error. The name made of that ticket
// reads as the same ticket.
func FuzzParse(f *testing.F) {
	f.Add("a_0000160969386537851501000036794192.168.0.1")
	f.Add("0000160969386537851500200036794::")
	f.Add("a_00000000160969386537851500200036794192.168.0.1")
	f.Add("\xff0000999999999999999901000065535fe80::1")
	f.Add("a_00001609693865378515002000367940000160969386537851500200036794192.168.0.1")
	f.Fuzz(func(t *testing.T, file string) {
		n, err := Parse(file)
		if err != nil {
			return
		}
		if n.Number < MinNumber || n.Number > MaxNumber || !strings.HasPrefix(file, n.Prefix) {
			t.Errorf("%q is read as %+v", file, n)
		}
		if len(file) > maxLength {
			return // no file can have such a name
		}
		if again, err := Parse(n.String()); err != nil || again != n {
			t.Errorf("%q is read as %+v, and %q as %+v, error %v", file, n, n.String(), again, err)
		}
	})
}

func TestPauseNames(t *testing.T) {
	end := time.Now().UTC().Truncate(time.Microsecond)
	for _, queue := range []string{"a", "-", "a_*", "*", "{user}_", "a_00001609693865378515", serializer.QueueName("/var/日本")} {
		for _, end := range []time.Time{end, serializer.Forever} {
			p := Pause{queue, end}
			if got, ok := ParsePause(p.String()); !ok || got.Queue != queue || !got.End.Equal(end) {
				t.Errorf("%+v became %+v, %t", p, got, ok)
			}
		}
	}
}
