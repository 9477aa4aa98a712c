package etcd

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The documentation has every metric, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, exported := make(map[string]bool), make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| `(caddy_serialize_etcd_\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = true
	}
	descs := make(chan *prometheus.Desc, 100)
	engines.Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for desc := range descs {
		exported[name.FindStringSubmatch(desc.String())[1]] = true
	}
	if !maps.Equal(documented, exported) {
		t.Errorf("docs/cluster.md has %v; exported are %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(exported)))
	}
}
