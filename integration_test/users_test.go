//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Root tries a service's configuration by hand: it validates and runs it, and the process
// is killed while a request is inside. Bug: the service could not open the files left
// behind, and waited for those tickets for ever.
func TestRootBesideService(t *testing.T) {
	t.Parallel()
	service := nobody(t)
	above := testcaddy.TempDir(t)
	check(t, os.Chown(above, int(service.uid), int(service.gid)))
	dir := filepath.Join(above, "queues") // validate makes it
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, dir: dir, site: serialized}

	byHand := start(t, s)
	byHand.holder(t)
	byHand.Kill()
	byHand.Open("holder")
	validate := testcaddy.CommandIn(t, byHand.home, "validate", "--config", filepath.Join(byHand.home, "Caddyfile"), "--adapter", "caddyfile")
	validate.Env = append(append(validate.Env, "ADMIN="+byHand.Admin), byHand.env()...)
	if _, errs, code := testcaddy.OutputOf(t, validate); code != 0 {
		t.Errorf("caddy validate: %s", errs)
	}

	s.user = service
	c := start(t, s)
	c.get("/?name=service").Want(t, http.StatusOK)
	upstream.WantOrder("holder", "service")
	c.awaitTickets(0)
}

// Caddys of several users do not obstruct each other in a directory that everybody may
// write to, such as the default one. Each has a directory of its own in it.
func TestUsersInDirectoryForAll(t *testing.T) {
	t.Parallel()
	other := nobody(t)
	dir := testcaddy.TempDir(t)
	check(t, os.Chmod(dir, 0o777|os.ModeSticky))
	check(t, os.Mkdir(filepath.Join(dir, "orderly-0"), 0o755)) // bug: it stayed open to others
	upstream := testcaddy.NewUpstream(t)
	root := start(t, setup{upstream: upstream, dir: dir, site: serialized})
	service := start(t, setup{upstream: upstream, dir: dir, site: serialized, user: other})
	answers := []<-chan testcaddy.Answer{root.getting("/?name=root&gate"), service.getting("/?name=service&gate")}
	upstream.AwaitEntry("root")
	upstream.AwaitEntry("service")
	waits := service.getting("/?name=waiter")
	service.awaitQueue("serializer_", 1, 1)
	for uid, tickets := range map[uint32]int{0: 1, other.uid: 2} {
		own := filepath.Join(dir, fmt.Sprintf("orderly-%d", uid))
		info, err := os.Stat(own)
		check(t, err)
		if n := len(lockFiles(t, own)); n != tickets || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v and %d tickets; expected 0700 and %d", own, info.Mode(), n, tickets)
		}
	}
	upstream.Open("service")
	upstream.Open("root")
	for _, answer := range append(answers, waits) {
		(<-answer).Want(t, http.StatusOK)
	}
}
