//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// metric returns the value of a metric, as the admin API shows it, or nothing.
func (c *caddy) metric(name string) string {
	c.t.Helper()
	for line := range strings.Lines(c.Ask("/metrics")) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (c *caddy) wantMetric(name, value string) {
	c.t.Helper()
	var got string
	if !wait.Poll(wait.Patience, func() bool { got = c.metric("caddy_serialize_" + name); return got == value }) {
		c.t.Errorf("%s is %q, want %s", name, got, value)
	}
}

// The metrics count every outcome, by the configured prefix, across reloads. The methods of skip_methods
// pass.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := setup{global: "metrics", site: behindQueue("prefix q_{http.request.uri.query.user}\nskip_methods options,Head PUT\nqueue_length 1\ntimeout 1m")}
	c := start(t, s)
	client := newClient(t, "1.1")
	const queue = `queue="q_{http.request.uri.query.user}"`
	requests := func(outcome string) string { return fmt.Sprintf(`requests_total{outcome="%s",%s}`, outcome, queue) }

	for i := range 3 {
		do(client, "GET", fmt.Sprintf("%s/?user=%d", c.url, i), "").Want(t, http.StatusOK)
	}
	holder, waiter := c.holder(t), c.waiter("waiter", 2)
	for method, status := range map[string]int{"HEAD": 200, "OPTIONS": 200, "PUT": 200, "GET": 503, "POST": 503, "DELETE": 503} {
		do(client, method, c.url, "").Want(t, status)
	}

	c.wantMetric(requests("entered"), "3")
	c.wantMetric(requests("skipped"), "3")
	c.wantMetric(requests("queue_full"), "3")
	c.wantMetric(fmt.Sprintf("inside{%s}", queue), "1")
	c.wantMetric(fmt.Sprintf("waiting{%s}", queue), "1")

	s.site = strings.Replace(s.site, "timeout 1m", "timeout 1s", 1)
	check(t, c.reload(s))
	c.release(holder)
	c.wantServed(waiter)
	c.wantMetric(requests("entered"), "5")
	c.wantMetric(fmt.Sprintf("inside{%s}", queue), "0")
	c.wantMetric(fmt.Sprintf("waiting{%s}", queue), "0")
	c.wantMetric(fmt.Sprintf("hold_seconds_count{%s}", queue), "5")
	c.wantMetric(fmt.Sprintf("wait_seconds_count{%s}", queue), "8")

	last := c.getting("/?name=last&gate")
	c.awaitHit("last")
	c.get("/").Want(t, http.StatusServiceUnavailable)
	c.wantMetric(requests("timeout"), "1")
	c.Open("last")
	c.wantServed(last)
	for _, outcome := range []string{"gone", "storage", "lost", "evicted"} {
		c.wantMetric(requests(outcome), "0")
	}
	// The label is the configured prefix; it does not grow with traffic.
	for line := range strings.Lines(c.Ask("/metrics")) {
		if strings.HasPrefix(line, "caddy_serialize_") && !strings.Contains(line, queue) {
			t.Errorf("another label: %s", line)
		}
	}
}

// A stuck holder adds no sample to a histogram and no count. But its age, and that of the
// oldest waiter, grow at each scrape, even if a reload has removed its queue.
func TestMetricsOfStuckHolder(t *testing.T) {
	t.Parallel()
	const queue = `{queue="serializer_"}`
	c := startQueue(t, "concurrency 2")
	answers := []<-chan testcaddy.Answer{c.getting("/?name=0&gate"), c.getting("/?name=1&gate")}
	c.awaitHit("0")
	c.awaitHit("1")
	answers = append(answers, c.waiter("2", 3))
	age := func(who string) float64 {
		value, err := strconv.ParseFloat(c.metric("caddy_serialize_oldest_"+who+"_seconds"+queue), 64)
		check(t, err)
		return value
	}
	grow := func(who string) {
		before := age(who)
		wait.Until(t, "the age of the oldest "+who+" grows", func() bool { return age(who) > before })
	}
	grow("inside")
	grow("waiting")
	c.wantMetric("limit"+queue, "2")
	check(t, c.reload(setup{site: behindQueue("prefix b_")}))
	grow("inside")
	grow("waiting")
	c.OpenAll()
	c.wantServed(answers...)
	c.wantMetric("oldest_inside_seconds"+queue, "")
}

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
	rules := readDocument(t, "alerts.yml")
	busy := regexp.MustCompile(`(?s)\(\s+rate\(caddy_serialize_hold_seconds_sum.*?limit > 0\)`).FindString(rules)
	queries := append(dashboardQueries(t), busy)
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
			for _, q := range queries {
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
