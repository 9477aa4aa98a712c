package testlease

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
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
	if address, ttl, asked := strings.Cut(os.Getenv(holderVariable), " "); asked {
		hold(open, address, ttl)
	}
	wait.InParallel()
	os.Exit(m.Run())
}

// hold is inside, and says when its turn is revoked.
func hold(open Open, address, text string) {
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

// startHolder starts a process, and waits until it is inside.
func startHolder(t *testing.T, address string, ttl time.Duration) *testprocess.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+address+" "+ttl.String())
	holder := testprocess.Start(t, cmd)
	holder.AwaitText("inside <nil>")
	return holder
}
