package once_test

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testonce"
)

// Files are exact, whatever is stopped or killed. The storage fails by a file that takes the place of the folder
// of all records for a while, in one step.
func TestOracle(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	folder, away := filepath.Join(data, "caddy", "orderly"), filepath.Join(data, "away")
	testcaddy.WriteFile(t, away, "")
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, away, unix.RENAME_EXCHANGE)
	}
	testonce.Cluster{
		Data: data, Line: "once {\nscope none\ntimeout 3s\nmax_response 15000\n}",
		Break: func(length time.Duration) {
			if exchange() != nil {
				return // there is none yet
			}
			time.Sleep(length)
			if err := exchange(); err != nil {
				t.Error(err)
			}
		},
	}.Test(t)
}
