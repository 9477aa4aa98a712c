//go:build unix

package integration_test

import (
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
