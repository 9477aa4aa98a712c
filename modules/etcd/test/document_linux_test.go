package test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The three members and two Caddys of docs/cluster.md, as they stand there: two Caddys that
// answer by turns give growing tickets.
func TestClusterToTry(t *testing.T) {
	testcaddy.Need(t, "etcd", "apt-get install etcd-server")
	page, err := os.ReadFile("../../../docs/cluster.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(page), "```sh\n")
	script, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(script, "sleep 5\n") {
		t.Fatalf("the page has the script %q", script)
	}
	// A busy machine may need longer. Bug: of both addresses in one call, only the second one counts.
	script = strings.Replace(script, "sleep 5\n", "until curl -sf 127.0.0.1:8081 && curl -sf 127.0.0.1:8082; do sleep 0.2; done >answers\n", 1)
	last, lines := 0, regexp.MustCompile(`(?m)^ticket (\d+), \d ahead$`).FindAllStringSubmatch(testcaddy.Shell(t, script, nil), -1)
	for _, line := range lines {
		token, err := strconv.Atoi(line[1])
		if err != nil || token <= last {
			t.Errorf("ticket %q after %d", line[1], last)
		}
		last = token
	}
	if len(lines) != 6 {
		t.Errorf("%d lines, not six: %q", len(lines), lines)
	}
}
