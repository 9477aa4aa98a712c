package serialize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// What Validate refuses, Provision refuses before it opens anything.
func TestValidateBeforeOpening(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	dir := filepath.Join(t.TempDir(), "locks")
	s := &Handler{Path: dir, Concurrency: -1}
	if err := s.Provision(ctx); err == nil || !strings.Contains(err.Error(), "concurrency -1") {
		t.Errorf("provisioning: %v", err)
	}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "concurrency -1") {
		t.Errorf("validating: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the lock directory was made")
	}
	if err := (&Handler{Off: true}).Validate(); err != nil {
		t.Errorf("validating off: %v", err)
	}
}
