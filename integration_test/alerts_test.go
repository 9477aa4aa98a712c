package integration

import (
	"os/exec"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Prometheus accepts the alert rules, and they fire. Bug: no alert fired for a request
// that was inside for 20 minutes while 19 waited.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := testcaddy.Need(t, "promtool", "apt-get install prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../docs"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
