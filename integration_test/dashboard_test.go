package integration_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// metricSamples are the values of a /metrics answer by name and labels.
func metricSamples(text string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		if sample, value, ok := strings.Cut(line, "} "); ok {
			values[sample+"}"] = strings.TrimSpace(value)
		}
	}
	return values
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
		value, err := strconv.ParseFloat(metricSamples(s.Ask("/metrics"))[name+`{queue="a_"}`], 64)
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
		if metricSamples(s.Ask("/metrics"))[inside+`{queue="a_"}`] != "" {
			return errors.New("there still is an age")
		}
		return nil
	})
}
