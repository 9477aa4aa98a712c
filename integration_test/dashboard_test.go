package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// metricSamples are the samples of a /metrics answer: labels by name, and by
// name and outcome the value.
func metricSamples(t *testing.T, text string) (labels map[string][]string, values map[string]string) {
	t.Helper()
	labels, values = make(map[string][]string), make(map[string]string)
	label := regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		sample, value, _ := strings.Cut(line, "} ")
		name, rest, _ := strings.Cut(sample, "{")
		values[sample+"}"] = strings.TrimSpace(value)
		for _, pair := range label.FindAllStringSubmatch(rest, -1) {
			if !slices.Contains(labels[name], pair[1]) {
				labels[name] = append(labels[name], pair[1])
			}
		}
	}
	return labels, values
}

// queries are all PromQL texts of a dashboard, wherever they are.
func queries(node any) (found []string) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			found = append(found, queries(child)...)
		}
	case map[string]any:
		for key, child := range node {
			text, isText := child.(string)
			if isText && (key == "expr" || key == "definition") {
				found = append(found, text)
			}
			found = append(found, queries(child)...)
		}
	}
	return found
}

// Every metric and label that the dashboard and the alert rules ask for is in a
// real answer.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "waiting_page")
	answer := s.send(t, "GET", "one")
	s.NextNamed("one").Leave()
	testcaddy.Await(t, answer)
	labels, _ := metricSamples(t, s.Ask("/metrics"))

	text, err := os.ReadFile("../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := queries(dashboard)
	if len(all) < 10 {
		t.Fatalf("there are only %d queries in the dashboard", len(all))
	}
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllSubmatch(rules, -1) {
		all = append(all, string(m[1]))
	}
	metric := regexp.MustCompile(`\bcaddy_[a-z_]+`)
	selector := regexp.MustCompile(`([a-z_]+)(?:=|=~|!~)"`)
	grouping := regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	for _, query := range all {
		if strings.Count(query, "(") != strings.Count(query, ")") || strings.Count(query, "{") != strings.Count(query, "}") {
			t.Errorf("%s: unbalanced", query)
		}
		names := metric.FindAllString(query, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric of Caddy", query)
		}
		var wanted []string
		for _, m := range selector.FindAllStringSubmatch(query, -1) {
			wanted = append(wanted, m[1])
		}
		for _, m := range grouping.FindAllStringSubmatch(query, -1) {
			wanted = append(wanted, strings.Split(m[1], ", ")...)
		}
		for _, name := range names {
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", query, name)
			}
			for _, label := range wanted {
				// Prometheus itself adds the instance.
				if label != "instance" && !slices.Contains(labels[name], label) {
					t.Errorf("%s: %s has no label %s", query, name, label)
				}
			}
		}
	}
}

// A stuck holder adds no sample to a histogram and no count. But its age, and that of the
// oldest waiter, grow at each scrape, even if a reload has removed its queue.
func TestMetricsOfStuckHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t, "concurrency 2\nqueue_length 5")
	var answers []<-chan testcaddy.Answer
	for i := range 3 {
		answers = append(answers, s.send(t, "GET", fmt.Sprint(i)))
		s.awaitTickets(t, i+1)
	}
	visitors := s.together(t, "0", "1")
	gauge := func(name string) float64 {
		_, values := metricSamples(t, s.Ask("/metrics"))
		value, err := strconv.ParseFloat(values[name+`{queue="a_"}`], 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return value
	}
	grow := func(names ...string) {
		for _, name := range names {
			before := gauge(name)
			wait.Eventually(t, name+" grows", func() error {
				if now := gauge(name); now <= before {
					return fmt.Errorf("it is %v after %v", now, before)
				}
				return nil
			})
		}
	}
	const inside, waiting = "caddy_serialize_oldest_inside_seconds", "caddy_serialize_oldest_waiting_seconds"
	grow(inside, waiting)
	if limit := gauge("caddy_serialize_limit"); limit != 2 {
		t.Errorf("the limit is %v; expected 2", limit)
	}
	s.Reload(t, strings.Replace(s.caddyfile(""), "prefix a_", "prefix b_", 1))
	grow(inside, waiting)
	for _, v := range visitors {
		v.Leave()
	}
	s.NextNamed("2").Leave()
	for _, answer := range answers {
		testcaddy.Await(t, answer)
	}
	wait.Eventually(t, "the queue is forgotten", func() error {
		if _, values := metricSamples(t, s.Ask("/metrics")); values[inside+`{queue="a_"}`] != "" {
			return errors.New("there still is an age")
		}
		return nil
	})
}
