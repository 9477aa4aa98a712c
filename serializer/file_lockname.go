package serializer

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A lock file's name has the format of Apache's mod_serializer:
//
//	<prefix><timestamp, 20 digits><family, 3><client port, 8><client IP>
//	a_0000160969386537851501000036794192.168.0.1
//
// The timestamp counts microseconds since 1970. It starts with exactly four zeros, which
// covers the years 2001 to 2286 and marks where the prefix ends. The family is Linux's
// AF_INET or AF_INET6. As in the example, which is the one of mod_serializer's document,
// an IPv6 socket may have a peer with an IPv4 address.
const (
	stampDigits  = 20
	familyDigits = 3
	portDigits   = 8
	fixedDigits  = stampDigits + familyDigits + portDigits

	familyIPv4 = "002"
	familyIPv6 = "010"

	minStamp = 1_000_000_000_000_000 // 2001-09-09
	maxStamp = 9_999_999_999_999_999 // 2286-11-20
)

// Ticket is the content of a lock file's name.
type Ticket struct {
	Prefix string         // names the queue
	Stamp  uint64         // microseconds since 1970 on the queue's clock; the token
	Client netip.AddrPort // the client that arrived
}

// Time returns when the ticket was issued, on the queue's clock. That is the system's
// clock, except that it never stands still or goes back. After a power failure, it may
// be up to a minute ahead.
func (t Ticket) Time() time.Time { return time.UnixMicro(int64(t.Stamp)) }

// Name returns the name of the ticket's lock file.
func (t Ticket) Name() string {
	var buf [255]byte // the longest name that file systems allow
	return string(t.AppendName(buf[:0]))
}

// AppendName appends the name of the ticket's lock file to b.
func (t Ticket) AppendName(b []byte) []byte {
	addr, port := t.Client.Addr().WithZone(""), t.Client.Port()
	if !addr.IsValid() {
		addr = netip.IPv4Unspecified()
	}
	addr = addr.Unmap()
	family := familyIPv4
	if addr.Is6() {
		family = familyIPv6
	}
	b = append(b, t.Prefix...)
	b = appendDigits(b, t.Stamp, stampDigits)
	b = append(b, family...)
	b = appendDigits(b, uint64(port), portDigits)
	return addr.AppendTo(b)
}

// appendDigits appends n in decimal, padded with zeros to width.
func appendDigits(b []byte, n uint64, width int) []byte {
	var digits [20]byte
	i := len(digits)
	for ; n > 0; n /= 10 {
		i--
		digits[i] = byte('0' + n%10)
	}
	for pad := width - (len(digits) - i); pad > 0; pad-- {
		b = append(b, '0')
	}
	return append(b, digits[i:]...)
}

// ParseTicket reads the name of a lock file of any queue. The end of the prefix is
// unambiguous. If it moved by up to four digits, the timestamp would not start with
// exactly four zeros. If it moved further, the remaining digits could not start an
// address.
func ParseTicket(name string) (Ticket, error) {
	for from := 0; ; from++ {
		zeros := strings.Index(name[from:], "0000")
		if zeros < 0 || len(name)-from-zeros <= fixedDigits {
			return Ticket{}, fmt.Errorf("lock-file name %q: expected <prefix><timestamp, 20 digits, four zeros first>"+
				"<family 002 or 010><port, 8 digits><IP address>", name)
		}
		from += zeros
		if t, ok := parseTicketAt(name, from); ok {
			return t, nil
		}
	}
}

func parseTicketAt(name string, at int) (Ticket, bool) {
	rest := name[at:]
	stamp, ok := parseDigits(rest[:stampDigits])
	if !ok || stamp < minStamp || stamp > maxStamp {
		return Ticket{}, false
	}
	family := rest[stampDigits : stampDigits+familyDigits]
	if family != familyIPv4 && family != familyIPv6 {
		return Ticket{}, false
	}
	port, ok := parseDigits(rest[stampDigits+familyDigits : fixedDigits])
	if !ok || port > 65535 {
		return Ticket{}, false
	}
	addr, err := netip.ParseAddr(rest[fixedDigits:])
	if err != nil || addr.Zone() != "" || family == familyIPv4 && !addr.Is4() {
		return Ticket{}, false
	}
	return Ticket{Prefix: name[:at], Stamp: stamp, Client: netip.AddrPortFrom(addr, uint16(port))}, true
}

func parseDigits(s string) (uint64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// tokenText is the text form of a token.
func tokenText(stamp uint64) string { return strconv.FormatUint(stamp, 10) }
