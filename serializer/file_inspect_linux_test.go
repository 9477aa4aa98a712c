package serializer

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A user other than the server's sees the order, but not the owners of tickets. Root may
// open everything, so it becomes another user for this test.
func TestInspectUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.Command(readable(t, os.Args[0]), "-test.run=^TestInspectUnreadable$")
		cmd.Dir = os.TempDir()
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bob, Gid: bob}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	name := Ticket{Prefix: "a_", Stamp: minStamp + 1}.Name()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0); err != nil {
		t.Fatal(err)
	}
	queues, err := Inspect(dir)
	if err != nil || len(queues) != 1 || queues[0].Tickets[0].Alive != nil {
		t.Errorf("queues are %+v, error %v; expected one ticket of which little is known", queues, err)
	}
}

// readable copies a program to where every user may run it.
func readable(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dirOf(t, 0, 0o755), "program")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
