package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// process is a program that a test can kill, stop, and start again.
type process struct {
	machine *machine // nil for the one that the test runs on
	program string
	args    []string
	env     []string
	cmd     *exec.Cmd // nil if it was killed
	output  wait.Output
}

// runProcess starts a program, and kills it at the end of the test.
func runProcess(t *testing.T, p *process) *process {
	t.Helper()
	p.start(t)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.output.String()
			t.Logf("%s %s said:\n%s", p.program, strings.Join(p.args, " "), text[max(0, len(text)-6000):])
		}
	})
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(p.program, p.args...)
	if p.machine != nil {
		p.cmd = p.machine.command(p.program, p.args...)
	}
	p.cmd.Env = append(os.Environ(), p.env...)
	fmt.Fprintln(&p.output, "leader: false")
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	// If the test is killed, its processes are, too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// leads reports whether a modern member says that it is the leader.
func (p *process) leads() bool {
	const says = "leader: "
	text := p.output.String()
	return p.cmd != nil && strings.HasPrefix(text[strings.LastIndex(text, says)+len(says):], "true")
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
}

// kill is kill -9.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // says that it was killed
		p.cmd = nil
	}
}

// member is how one of several members of etcd is run.
type member struct{ name, dir, client, peer, cluster string }

// debian is a member with the etcd of this system.
func (m member) debian(t *testing.T, more ...string) *process {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Fatal("this test needs an etcd server, on Debian from etcd-server: ", err)
	}
	return &process{program: "etcd", args: append([]string{
		"--name", m.name, "--data-dir", m.dir, "--log-level", "error", "--initial-cluster", m.cluster,
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
	}, more...)}
}

// modern is a member with the etcd that this program contains.
func (m member) modern(t *testing.T) *process {
	t.Helper()
	program, err := os.Executable()
	testlease.Must(t, err)
	return &process{program: program, args: []string{m.name, m.dir, m.client, m.peer, m.cluster}, env: []string{testetcd.ServerEnv + "=1"}}
}

// members describes the members of a cluster. at returns an address for a member.
func members(dir string, n int, at func(member, port int) string) (all []member) {
	var cluster []string
	for i := range n {
		name := "m" + strconv.Itoa(i)
		m := member{name: name, dir: filepath.Join(dir, name), client: "http://" + at(i, 2379), peer: "http://" + at(i, 2380)}
		all, cluster = append(all, m), append(cluster, name+"="+m.peer)
	}
	for i := range all {
		all[i].cluster = strings.Join(cluster, ",")
	}
	return all
}

// trio is three members of etcd, each a process on this machine.
type trio struct {
	members   []*process
	endpoints []string
}

// startTrio starts three members until the end of the test.
func startTrio(t *testing.T, processOf func(member) *process) *trio {
	t.Helper()
	s := new(trio)
	// Only a member listens on these; no connection of this machine goes out from there.
	for _, m := range members(t.TempDir(), 3, func(i, _ int) string { return freeAddressOn(t, i) }) {
		s.members, s.endpoints = append(s.members, runProcess(t, processOf(m))), append(s.endpoints, m.client)
	}
	return s
}

// startDebianTrio runs three members with the etcd of this system.
func startDebianTrio(t *testing.T, more ...string) *trio {
	t.Helper()
	return startTrio(t, func(m member) *process { return m.debian(t, more...) })
}

func freeAddressOn(t *testing.T, i int) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 10+i))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
