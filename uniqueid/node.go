package uniqueid

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// Node distinguishes one process from all others in the classic and threaded layouts. It
// is an IPv4 address and a pid, or 64 random bits in their place. The zero Node is none:
// all processes would share it.
type Node struct {
	field  [8]byte // address and pid
	random bool
}

// FixedNode returns the node of an IPv4 address and a pid. The error says what is
// wrong with the address.
func FixedNode(addr netip.Addr, pid uint32) (Node, error) {
	addr = addr.Unmap()
	if !addr.Is4() {
		return Node{}, fmt.Errorf("making a node: %q is not an IPv4 address", addr)
	}
	var node Node
	ip := addr.As4()
	copy(node.field[:], ip[:])
	binary.BigEndian.PutUint32(node.field[4:], pid)
	return node, nil
}

// RandomNode returns a node of 64 random bits. Of the options, only [WithRandom]
// matters.
func RandomNode(options ...Option) Node {
	node := Node{random: true}
	binary.BigEndian.PutUint64(node.field[:], draw(newSettings(options).random))
	return node
}

// Random reports whether the node consists of random bits.
func (n Node) Random() bool { return n.random }

// String returns "192.0.2.1 pid 7", or "random" and 16 hexadecimal digits.
func (n Node) String() string {
	if n.random {
		return fmt.Sprintf("random %x", n.field)
	}
	return fmt.Sprintf("%s pid %d", netip.AddrFrom4([4]byte(n.field[:])), n.pid())
}

func (n Node) pid() uint32 { return binary.BigEndian.Uint32(n.field[4:]) }

// machine is what distinguishes this process from others.
type machine struct {
	hostname  string
	addrs     []netip.Addr // that the name resolves to
	err       error        // why there is no name or no address, if so
	pid       uint32
	container bool // whether there are signs of a container; a pid of 1 is such a sign by itself
}

// thisMachine returns the machine that the process runs on.
func thisMachine(ctx context.Context) machine {
	m := machine{pid: uint32(os.Getpid())}
	for _, sign := range []string{"/.dockerenv", "/run/.containerenv"} {
		_, err := os.Stat(sign)
		m.container = m.container || err == nil
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	m.container = m.container || err == nil && pids != initialPIDs
	m.hostname, m.err = os.Hostname()
	if m.err == nil {
		m.addrs, m.err = net.DefaultResolver.LookupNetIP(ctx, "ip4", m.hostname)
	}
	return m
}

// initialPIDs is the pid namespace of a Linux that is in no container: PROC_PID_INIT_INO in
// its source.
const initialPIDs = "pid:[4026531836]"

// AutoNode returns the node that the document of mod_unique_id asks for: the IPv4
// address that the host's name resolves to, and the pid. If these cannot distinguish
// machines, the node is random, and reason says why, in words for a log line.
// Otherwise, reason is empty. The node is random if
//   - the name resolves to no IPv4 address, to loopback, or to a link-local address,
//   - the process is in a container (pid 1, or other signs of one): others may have the same
//     pid, and the same address by a bridge that every host has, or by their host's network,
//   - the pid does not fit in the 22 bits that the classic layout has for it.
//
// Resolving the name takes at most as long as the context allows.
func AutoNode(ctx context.Context, options ...Option) (node Node, reason string) {
	return thisMachine(ctx).node(options...)
}

func (m machine) node(options ...Option) (node Node, reason string) {
	switch {
	case m.err != nil:
		reason = fmt.Sprintf("the host's name does not resolve: %v", m.err)
	case m.pid>>pidBits != 0:
		reason = fmt.Sprintf("pid %d does not fit in %d bits", m.pid, pidBits)
	case m.pid == 1 || m.container:
		reason = "in a container, others can have the same address and pid"
	default:
		for _, addr := range m.addrs {
			if node, err := FixedNode(addr, m.pid); err == nil && addr.IsGlobalUnicast() {
				return node, ""
			}
		}
		reason = fmt.Sprintf("the host's name %q has no IPv4 address of this machine alone, only %v", m.hostname, m.addrs)
	}
	return RandomNode(options...), reason
}
