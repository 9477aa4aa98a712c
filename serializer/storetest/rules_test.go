package storetest_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

// wrongRuleEnv says that this process has been built with a wrong rule of admission.
const wrongRuleEnv = "ORDERLY_TEST_WRONG_RULE"

// Engines with a wrong rule of admission are found on a store that is right. Bug: the suite
// judged the rule by itself, so every change of it was right.
func TestWrongRules(t *testing.T) {
	if os.Getenv(wrongRuleEnv) != "" {
		storetest.Run(t, storetest.Options{Private: true, Patience: time.Second / 2}, func(testing.TB, int) []serializer.Store {
			return []serializer.Store{memory.New(memory.Options{})}
		})
		return
	}
	file, err := filepath.Abs("../admission.go")
	text, readErr := os.ReadFile(file)
	if err = errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ wrong, line, by string }{
		{"readers overtake writers", "t := q.border", `t := q.border
			for n := t; n != nil && !t.Rule.Shared && q.readers > 0; n = n.next {
				if n.Rule.Shared {
					q.remove(n); q.link(n, t)
					q.length, q.local, q.border, t = q.length+1, q.local+one(n.Local()), n, n
				}
			}`},
		{"one more than the limit", "ahead < room", "ahead <= room"},
		{"one less than the limit", "ahead < room", "(ahead == 0 || ahead+1 < room)"},
		{"a writer beside readers", "return shared == 0 &&", "return (!r.Shared || shared == 0) &&"},
		{"a reader beside writers", "return shared == 0 &&", "return (r.Shared || shared == 0) &&"},
		{"only the own limit counts", "room = narrower(r.Capacity(), room)", "room = r.Capacity()"},
		{"readers without a limit", "return max(r.Limit, 0)", "return 0"},
		{"writers without a limit are two", "return max(r.Limit, 1)", "return max(r.Limit, 2)"},
		{"a narrow limit stays", "q.room = 0\n", ""},
	} {
		t.Run(c.wrong, func(t *testing.T) {
			t.Parallel()
			wrong, overlay := filepath.Join(t.TempDir(), "admission.go"), filepath.Join(t.TempDir(), "overlay.json")
			changed := strings.Replace(string(text), c.line, c.by, 1)
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: wrong}})
			if err = errors.Join(err, os.WriteFile(wrong, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-run", "TestWrongRules/history", "-count=3", ".")
			cmd.Env = append(os.Environ(), wrongRuleEnv+"=yes")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestWrongRules/") {
				t.Errorf("not found: %v\n%s", err, out)
			}
		})
	}
}
