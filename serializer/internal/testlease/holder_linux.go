package testlease

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// holderVariable in the environment makes a program that calls [Main] a process that is inside: the
// address of the server, and the time to live.
const holderVariable = "ORDERLY_TEST_HOLDER"

// Open opens the store of a process, whose server or link has an address.
type Open func(address string, ttl time.Duration) (serializer.Store, error)

// Main runs a package's tests, or a process that is inside, and exits.
func Main(m *testing.M, open Open) {
	HoldIfAsked(open)
	wait.InParallel()
	os.Exit(m.Run())
}

// HoldIfAsked makes this program a process that is inside, and that says when its turn is revoked, if
// that is what a test has started it for.
func HoldIfAsked(open Open) {
	address, text, asked := strings.Cut(os.Getenv(holderVariable), " ")
	if !asked {
		return
	}
	ttl, _ := time.ParseDuration(text) // written below
	store, err := open(address, ttl)
	if err != nil {
		panic(err)
	}
	a, revoked := Arrival(Queue, 0), make(chan error, 1)
	a.Revoke = func(err error) { revoked <- err }
	_, err = serializer.New(store, serializer.Options{}).Enter(context.Background(), a)
	fmt.Println("inside", err)
	fmt.Println("revoked", <-revoked)
	select {}
}

// holder is a process that is inside.
type holder struct {
	*exec.Cmd
	says *bufio.Scanner
}

func startHolder(t *testing.T, address string, ttl time.Duration) holder {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+address+" "+ttl.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h := holder{cmd, bufio.NewScanner(out)}
	h.wantSays(t, "inside <nil>")
	return h
}

func (h holder) wantSays(t *testing.T, text string) {
	t.Helper()
	if !h.says.Scan() || !strings.Contains(h.says.Text(), text) {
		t.Fatalf("the process says %q; expected %q", h.says.Text(), text)
	}
}
