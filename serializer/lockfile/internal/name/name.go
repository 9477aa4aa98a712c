// Package name says what the files in a lock directory are called.
package name

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The name of a ticket's file has the format of Apache's mod_serializer:
//
//	<prefix><timestamp, 20 digits><family, 3><client port, 8><client IP>
//	a_0000160969386537851501000036794192.168.0.1
//
// The timestamp counts microseconds since 1970. It starts with exactly four zeros, which
// covers the years 2001 to 2286 and marks where the prefix ends. The family is Linux's
// AF_INET or AF_INET6. As in the example, which is the one of mod_serializer's document,
// an IPv6 socket may have a peer with an IPv4 address.
const (
	numberDigits = 20
	familyDigits = 3
	portDigits   = 8
	fixedDigits  = numberDigits + familyDigits + portDigits

	familyIPv4 = "002"
	familyIPv6 = "010"
)

// The smallest and the greatest number of a ticket, in microseconds since 1970.
const (
	MinNumber = 1_000_000_000_000_000 // 2001-09-09
	MaxNumber = 9_999_999_999_999_999 // 2286-11-20
)

// maxLength is the longest file name that file systems allow, in bytes. Names of queues are so
// short that those of their evictions fit; see [serializer.CheckQueueName].
const maxLength = 255

// The files of a lock directory that are no tickets. [Parse] accepts none of these names.
const (
	Guard  = serializer.ReservedPrefix + "guard"
	Owners = serializer.ReservedPrefix + "owner-" // + random letters
	New    = serializer.ReservedPrefix + "new-"   // + random letters: an owner file that is being made
	Pauses = serializer.ReservedPrefix + "pause-" // + the end, 20 digits, "-" and the queue's name
	Evicts = serializer.ReservedPrefix + "evict-" // + the name of the ticket's file, which its owner should take out
)

// OwnerText is the first line of an owner file.
const OwnerText = "orderly lock-file owner 1"

// Name is the content of the name of a ticket's file. The queue's clock is that of the
// system, except that it never stands still or goes back. After a power failure, it may be
// up to ten minutes ahead.
type Name struct {
	Prefix string         // names the queue
	Number uint64         // the token: microseconds since 1970 on the queue's clock
	Client netip.AddrPort // the client that arrived
}

// String returns the name of the file.
func (n Name) String() string {
	var buf [maxLength]byte
	b := append(buf[:0], n.Prefix...)
	addr, family := n.Client.Addr().WithZone("").Unmap(), familyIPv4
	if !addr.IsValid() {
		addr = netip.IPv4Unspecified()
	}
	if addr.Is6() {
		family = familyIPv6
	}
	b = AppendDigits(b, n.Number, numberDigits)
	b = append(b, family...)
	b = AppendDigits(b, uint64(n.Client.Port()), portDigits)
	return string(addr.AppendTo(b))
}

// Parse reads the name of a ticket's file, of any queue. The end of the prefix is
// unambiguous. If it moved by up to four digits, the timestamp would not start with
// exactly four zeros. If it moved further, the remaining digits could not start an
// address.
func Parse(file string) (Name, error) {
	for at := 0; ; at++ {
		zeros := strings.Index(file[at:], "0000")
		at += zeros
		if zeros < 0 || len(file)-at <= fixedDigits {
			return Name{}, fmt.Errorf("lock-file name %q: expected <prefix><timestamp, 20 digits, four zeros first>"+
				"<family 002 or 010><port, 8 digits><IP address>", file)
		}
		if n, ok := parseAt(file, at); ok {
			return n, nil
		}
	}
}

func parseAt(file string, at int) (Name, bool) {
	rest := file[at:]
	number, numberErr := strconv.ParseUint(rest[:numberDigits], 10, 64)
	family := rest[numberDigits : numberDigits+familyDigits]
	port, portErr := strconv.ParseUint(rest[numberDigits+familyDigits:fixedDigits], 10, 16)
	if numberErr != nil || number < MinNumber || number > MaxNumber || family != familyIPv4 && family != familyIPv6 || portErr != nil {
		return Name{}, false
	}
	addr, err := netip.ParseAddr(rest[fixedDigits:])
	if err != nil || addr.Zone() != "" || family == familyIPv4 && !addr.Is4() {
		return Name{}, false
	}
	return Name{Prefix: file[:at], Number: number, Client: netip.AddrPortFrom(addr, uint16(port))}, true
}

// Pause is the content of the name of a pause's file.
type Pause struct {
	Queue string    // may end in *
	End   time.Time // in microseconds; [serializer.Forever] means none
}

// String returns the name of the file.
func (p Pause) String() string { return fmt.Sprintf("%s%020d-%s", Pauses, p.End.UnixMicro(), p.Queue) }

// ParsePause reads the name of a pause's file.
func ParsePause(file string) (Pause, bool) {
	end, queue, _ := strings.Cut(strings.TrimPrefix(file, Pauses), "-")
	micros, err := strconv.ParseUint(end, 10, 64)
	ok := err == nil && len(end) == numberDigits && queue != "" && micros <= uint64(serializer.Forever.UnixMicro())
	return Pause{Queue: queue, End: time.UnixMicro(int64(micros)).UTC()}, ok
}

// Random returns 16 random letters for the name of a file.
func Random() string { return strings.ToLower(rand.Text()[:16]) }

// AppendDigits appends n in decimal, padded with zeros to width, at most 20.
func AppendDigits(b []byte, n uint64, width int) []byte {
	b = append(b, "00000000000000000000"[:width]...)
	for at := len(b) - 1; n > 0; n /= 10 {
		b[at] = byte('0' + n%10)
		at--
	}
	return b
}
