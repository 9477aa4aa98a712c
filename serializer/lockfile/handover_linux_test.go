package lockfile

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// How long a turn takes from one process to the next.
func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	testlease.HandOver(b, func() *serializer.Engine { return open(b, dir).Engine })
}
