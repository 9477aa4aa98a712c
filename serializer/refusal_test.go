package serializer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Each cause has its reason, and no reason is missing from the list, by which the metrics
// count.
func TestReasons(t *testing.T) {
	reasons := map[error]serializer.Reason{
		serializer.ErrTimeout:    serializer.ReasonTimeout,
		serializer.ErrFull:       serializer.ReasonFull,
		serializer.ErrSuperseded: serializer.ReasonSuperseded,
		serializer.ErrEvicted:    serializer.ReasonEvicted,
		serializer.ErrLost:       serializer.ReasonLost,
		serializer.ErrStorage:    serializer.ReasonStorage,
		serializer.ErrClosed:     serializer.ReasonClosed,
		context.Canceled:         serializer.ReasonGone,
		&serializer.StorageError{Op: "renewing", Path: "etcd:", Err: serializer.ErrLost}: serializer.ReasonStorage,
	}
	for err, want := range reasons {
		if got := serializer.ReasonOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is refused for %q; expected %q", err, got, want)
		}
	}
	all := slices.Compact(slices.Sorted(maps.Values(reasons)))
	if listed := slices.Sorted(slices.Values(serializer.Reasons())); !slices.Equal(listed, all) {
		t.Errorf("listed are %q; expected %q", listed, all)
	}
}
