//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The rules and the order of arrival determine who is inside together, whichever process
// the requests come to. Requests are named by their number; each arrives after the
// previous one has its ticket. Then, they enter and leave as [testcaddy.Upstream.Follow] says.
func TestAdmission(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, options string
		methods       string
		steps         []string
		most          int // are inside at once
	}{
		// Exactly as many are inside as the configuration says, and the others
		// follow one by one.
		{
			"concurrency", "concurrency 3", "GET GET GET GET GET GET GET GET", //nolint:dupword // requests
			[]string{"+0 1 2", "-1", "+3", "-0", "+4", "-2", "+5", "-3", "+6", "-4", "+7", "-5 6 7"}, 3,
		},
		// Readers are inside side by side and writers alone; a reader that came
		// after a writer waits for it, so the writer's turn comes.
		{
			"readers and writers", "shared_methods GET HEAD", "GET HEAD POST GET GET PUT POST GET", //nolint:dupword // requests
			[]string{"+0 1", "-0", "+", "-1", "+2", "-2", "+3 4", "-3 4", "+5", "-5", "+6", "-6", "+7", "-7"}, 2,
		},
		// With both, concurrency bounds the readers.
		{
			"readers up to concurrency", "shared_methods GET\nconcurrency 2", "GET GET GET POST GET", //nolint:dupword // requests
			[]string{"+0 1", "-0", "+2", "-2", "+", "-1", "+3", "-3", "+4", "-4"}, 2,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, engine string) {
				c := start(t, setup{upstream: testcaddy.NewGatedUpstream(t), site: behindQueue(test.options + "\nengine " + engine)})
				processes := []*caddy{c}
				if engine == "file" { // which two processes can share
					processes = append(processes, c.another())
				}
				var answers []<-chan testcaddy.Answer
				for i, method := range strings.Fields(test.methods) {
					answers = append(answers, processes[i%len(processes)].send(method, fmt.Sprint("name=", i)))
					wait.Until(t, "it has a ticket", func() bool { return len(c.queue("serializer_").Tickets) == i+1 })
				}
				c.Follow(test.steps...)
				c.wantServed(answers...)
				c.WantMost(test.most)
			})
		})
	}
}
