// Package lockfile keeps the tickets of an engine as lock files in a directory. Any number
// of processes on one machine may share it, also across containers.
package lockfile

import (
	"log/slog"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Options adjust a [Store]. The zero value suits most uses.
type Options struct {
	Clock func() time.Time // the time for ticket numbers; nil means [time.Now]
	Log   *slog.Logger     // nil means no log
}

// Name is the content of the name of a ticket's file.
type Name = name.Name

// ParseName reads the name of a ticket's file, of any queue.
func ParseName(file string) (Name, error) { return name.Parse(file) }
