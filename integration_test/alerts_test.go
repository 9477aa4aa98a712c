//go:build unix

package integration_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
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

// Every panel of the dashboard shows something in a real Prometheus, which knows every
// metric that the alert rules ask for. Bug: five panels and SerializeBusy were empty with
// native histograms.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	program := testcaddy.Need(t, "prometheus", "apt-get install prometheus")
	panels, rules := dashboardQueries(t), readDocument(t, "alerts.yml")
	busy := regexp.MustCompile(`(?s)\(\s+rate\(caddy_serialize_hold_seconds_sum.*?limit > 0\)`).FindString(rules)
	metric := regexp.MustCompile(`\b(caddy_serialize|caddy_once|process_start)_[a-z_]+`)

	c := start(t, setup{site: "metrics /metrics\nonce {\nscope none\n}\nserialize /queue* {\npath {$DIR}\n}\nreverse_proxy {$UPSTREAM}"})
	testcaddy.Get(t, c.url+"/queue").Want(t, 200)
	_, config, _ := strings.Cut(readDocument(t, "operations.md"), "```yaml\n")
	config, _, _ = strings.Cut(config, "```")
	config = strings.NewReplacer("localhost:2019", fmt.Sprintf("127.0.0.1:%d", c.port), "15s", "1s").Replace(config)
	for kind, flags := range map[string][]string{"classic": nil, "native": {"--enable-feature=native-histograms"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, addr := testcaddy.TempDir(t), testprocess.FreeAddr(t)
			file := filepath.Join(dir, "prometheus.yml")
			testcaddy.WriteFile(t, file, config)
			testprocess.Start(t, exec.CommandContext(t.Context(), program, append(flags,
				"--config.file="+file, "--storage.tsdb.path="+dir, "--web.listen-address="+addr)...)).AwaitText("Server is ready")
			query := func(q string) string {
				return testcaddy.Get(t, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(q)).Text
			}
			for _, q := range append(panels, busy) {
				wait.Until(t, q, func() bool { return strings.Contains(query(q), `"value"`) })
			}
			for _, name := range metric.FindAllString(rules, -1) {
				if kind == "classic" && name != "caddy_serialize_hold_seconds" && !strings.Contains(query(name), `"value"`) {
					t.Errorf("%s of alerts.yml is unknown", name)
				}
			}
		})
	}
}

// dashboardQueries are all queries of the dashboard, with their variables filled in.
func dashboardQueries(t *testing.T) (all []string) {
	t.Helper()
	fill := strings.NewReplacer("$queue", ".*", "$instance", ".*", "$__rate_interval", "1m")
	text := readDocument(t, "grafana-dashboard.json")
	for _, match := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(text, -1) {
		var expr string
		decodeInto(t, match[1], &expr)
		all = append(all, fill.Replace(expr))
	}
	if len(all) < 10 {
		t.Fatalf("there are only %d queries in the dashboard", len(all))
	}
	return all
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs", name))
	check(t, err)
	return string(text)
}
