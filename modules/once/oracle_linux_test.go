package once_test

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testonce"
)

// Files are exact, whatever is stopped or killed.
func TestOracle(t *testing.T) {
	t.Parallel()
	testonce.Cluster{Line: "once {\nscope none\ntimeout 3s\nmax_response 15000\n}"}.Test(t)
}
