package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// network is a bridge in a namespace of its own, and machines around it: a
// namespace each, with a link that can be cut.
type network struct {
	name  string
	nodes int
}

// machine is a network namespace.
type machine struct {
	net     *network
	space   string
	link    string // at the bridge
	address string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no iproute2: ", err)
	}
	n := &network{name: fmt.Sprintf("ord%d", os.Getpid())}
	if text, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", text)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.name).Run() })
	n.ip(t, "link add bridge type bridge")
	n.ip(t, "link set bridge up")
	return n
}

// ip runs iproute2's ip in the bridge's namespace.
func (n *network) ip(t *testing.T, command string) {
	t.Helper()
	run(t, "ip", append([]string{"-n", n.name}, strings.Fields(command)...)...)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, text)
	}
}

// machine adds one.
func (n *network) machine(t *testing.T) *machine {
	t.Helper()
	n.nodes++
	m := &machine{
		net:     n,
		space:   fmt.Sprintf("%s-%d", n.name, n.nodes),
		link:    fmt.Sprintf("link%d", n.nodes),
		address: fmt.Sprintf("10.77.0.%d", n.nodes),
	}
	run(t, "ip", "netns", "add", m.space)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", m.space).Run() })
	n.ip(t, "link add "+m.link+" type veth peer name eth0 netns "+m.space)
	n.ip(t, "link set "+m.link+" master bridge up")
	for _, command := range []string{"addr add " + m.address + "/24 dev eth0", "link set eth0 up", "link set lo up"} {
		run(t, "ip", append([]string{"-n", m.space}, strings.Fields(command)...)...)
	}
	return m
}

// cut takes the machine off the network.
func (m *machine) cut(t *testing.T) {
	t.Helper()
	m.net.ip(t, "link set "+m.link+" down")
}

// heal puts it back.
func (m *machine) heal(t *testing.T) {
	t.Helper()
	m.net.ip(t, "link set "+m.link+" up")
}

// launcher is a command that runs on the machine what follows it.
func (m *machine) launcher() []string { return []string{"ip", "netns", "exec", m.space} }
