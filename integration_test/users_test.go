//go:build unix

package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Root tries a service's configuration by hand: validates it, runs it, and the
// process is killed while a request is inside. The service could not open what that
// left, and waited for its tickets for ever.
func TestRootBesideService(t *testing.T) {
	t.Parallel()
	service := nobody(t)
	above := tempDir(t)
	check(t, os.Chown(above, int(service.uid), int(service.gid)))
	dir := filepath.Join(above, "queues") // validate makes it
	b := newBackend(t)
	s := setup{backend: b, dir: dir, site: serialized}

	byHand := start(t, s)
	holder := byHand.getting("/?name=root&gate")
	b.awaitEntry(t, "root")
	byHand.Signal(syscall.SIGKILL)
	byHand.AwaitEnd()
	<-holder
	b.open("root")
	byHand.run("validate", "--config", filepath.Join(byHand.home, "Caddyfile"), "--adapter", "caddyfile")
	byHand.AwaitEnd()
	if byHand.Err != nil {
		t.Errorf("caddy validate: %v", byHand.Err)
	}

	s.user = service
	c := start(t, s)
	c.get("/?name=service").want(t, http.StatusOK)
	b.wantOrder(t, "root", "service")
	c.wantNoTickets()
}

// Caddys of several users in a directory for all, such as the default one, do not
// stand in each other's way.
func TestUsersInDirectoryForAll(t *testing.T) {
	t.Parallel()
	other := nobody(t)
	dir := tempDir(t)
	check(t, os.Chmod(dir, 0o1777))
	b := newBackend(t)
	root := start(t, setup{backend: b, dir: dir, site: serialized})
	service := start(t, setup{backend: b, dir: dir, site: serialized, user: other})
	answers := []<-chan response{root.getting("/?name=root&gate"), service.getting("/?name=service&gate")}
	b.awaitEntry(t, "root")
	b.awaitEntry(t, "service")
	waits := service.getting("/?name=waiter")
	service.awaitTickets(3)
	b.open("service")
	b.open("root")
	for _, answer := range append(answers, waits) {
		(<-answer).want(t, http.StatusOK)
	}
	service.wantNoTickets()
}
