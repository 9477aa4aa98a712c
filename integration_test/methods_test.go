//go:build unix

package integration_test

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The methods of skip_methods pass. The memory engine does not touch the directory.
func TestSkipMethods(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		c := startQueue(t, "skip_methods get,Head OPTIONS\nengine "+engine)
		holder := c.send("POST", "name=holder&gate")
		c.AwaitEntry("holder")
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			c.wantServed(c.send(method, "name="+method))
		}
		answers := []<-chan testcaddy.Answer{holder}
		for i, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			answers = append(answers, c.send(method, "name="+method))
			c.awaitQueue("serializer_", 1, i+1)
			c.WantNever(method)
		}
		if names := fileNames(t, c.dir); engine == "memory" && len(names) > 0 {
			t.Errorf("the engine made files: %v", names)
		}
		c.Open("holder")
		c.wantServed(answers...)
		c.WantOrder("holder", "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")
	})
}
