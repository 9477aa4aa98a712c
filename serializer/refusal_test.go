package serializer_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// No reason is missing from the list, by which the metrics count.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile("refusal.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []serializer.Reason
	for _, match := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, serializer.Reason(match[1]))
	}
	listed := serializer.Reasons()
	slices.Sort(declared)
	slices.Sort(listed)
	if len(declared) == 0 || !slices.Equal(declared, listed) {
		t.Errorf("declared are %q; listed are %q", declared, listed)
	}
	for err, want := range map[error]serializer.Reason{
		serializer.ErrTimeout:    serializer.ReasonTimeout,
		serializer.ErrFull:       serializer.ReasonFull,
		serializer.ErrSuperseded: serializer.ReasonSuperseded,
		serializer.ErrEvicted:    serializer.ReasonEvicted,
		serializer.ErrLost:       serializer.ReasonLost,
		serializer.ErrStorage:    serializer.ReasonStorage,
		serializer.ErrClosed:     serializer.ReasonStorage,
		context.Canceled:         serializer.ReasonGone,
		&serializer.StorageError{Op: "renewing", Path: "etcd:", Err: serializer.ErrLost}: serializer.ReasonStorage,
	} {
		if got := serializer.ReasonOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is refused for %q; expected %q", err, got, want)
		}
	}
}
