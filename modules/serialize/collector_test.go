package serialize

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

// The documentation has every metric with its labels, and no other; and every outcome.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	page := string(text)
	documented := make(map[string]string) // labels, by name
	for _, row := range regexp.MustCompile("(?m)^\\| `(caddy_serialize_\\w+)` \\| (?:counter|gauge|histogram) \\| (.*?) \\|").FindAllStringSubmatch(page, -1) {
		documented[row[1]] = strings.NewReplacer("`", "", " ", "").Replace(row[2])
	}
	exported := make(map[string]string)
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range collectors {
		c.Describe(descs)
	}
	close(descs)
	parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	for desc := range descs {
		match := parts.FindStringSubmatch(desc.String())
		if match == nil {
			t.Fatalf("a metric describes itself as %s", desc)
		}
		exported[match[1]] = match[2]
	}
	if !maps.Equal(documented, exported) {
		t.Errorf("docs/operations.md has %v; exported are %v", documented, exported)
	}

	for _, outcome := range telemetry.Outcomes {
		if !strings.Contains(page, "`"+outcome+"`") {
			t.Errorf("docs/operations.md does not have the outcome %s", outcome)
		}
	}
}
