//go:build unix

package integration_test

import (
	"strings"
	"testing"
)

// The log warns of routes through two queues in opposite orders.
func TestOppositeNesting(t *testing.T) {
	t.Parallel()
	const a, b = "serialize {\npath {$DIR}\nprefix a_\n}\n", "serialize {\npath {$DIR}\nprefix b_\n}\n"
	for _, test := range []struct {
		name, site string
		warned     bool
	}{
		{"one order", "route /x {\n" + a + "route {\n" + b + "}\n}\nroute /y {\n" + a + "route {\n" + b + "}\n}", false},
		{"opposite orders", "route /x {\n" + a + "route {\n" + b + "}\n}\nroute /y {\n" + b + "route {\n" + a + "}\n}", true},
		{"one order, the outer queue for all", a + "handle /x {\n" + b + "respond x\n}\nhandle /y {\n" + b + "respond y\n}", false},
		{"opposite orders, the outer queue for all", a + "handle /x {\n" + b + "respond x\n}\nhandle /y {\n" + b + "handle {\n" + a + "respond y\n}\n}", false},
		{"opposite orders in handle blocks", "handle /x {\n" + a + "route {\n" + b + "}\n}\nhandle /y {\n" + b + "handle {\n" + a + "respond y\n}\n}", true},
		{"alternatives", "handle /x {\n" + a + "}\nhandle /y {\n" + b + "}\nhandle /z {\n" + a + "}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: test.site})
			isWarning := func(e entry) bool {
				text, _ := e["msg"].(string)
				return strings.HasPrefix(text, "requests that come to two queues in opposite orders")
			}
			if test.warned { // Bug: the log was read before the warning had come through the pipe
				c.awaitEntry("the warning", isWarning)
			}
			warnings := c.Log.All(isWarning)
			if warned := len(warnings) > 0; warned != test.warned {
				t.Errorf("warned: %v, want %v: %v", warned, test.warned, warnings)
			}
			for _, e := range warnings {
				if e["queue"] == e["then"] || !strings.Contains(e["at"].(string), "/routes/") || e["opposite_at"] == e["at"] {
					t.Errorf("the warning is %v", e)
				}
			}
		})
	}
}
