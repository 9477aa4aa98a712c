package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// outcome is what wrk reports of a run. Each client sends its next request when it has the
// answer to the last.
type outcome struct {
	Requests, Micros int     // how many were answered, in how many microseconds
	Bad              int     // errors, timeouts and refusals
	Median, P99      float64 // of the wait, microseconds
}

//go:embed wrk.lua
var wrkScript string

var errStill = errors.New("nobody was served")

// load has clients ask a server.
func (b *bench) load(ctx context.Context, r serving) (o outcome, err error) {
	wrk, err := server.Find("wrk")
	if err != nil {
		return o, err
	}
	script := filepath.Join(b.home, "wrk.lua")
	if err := os.WriteFile(script, []byte(wrkScript), 0o644); err != nil {
		return o, fmt.Errorf("writing wrk's script: %w", err)
	}
	out, err := exec.CommandContext(ctx, wrk, "--threads", "1", "--connections", strconv.Itoa(r.clients),
		"--duration", strconv.Itoa(r.seconds), "--timeout", "60", "--script", script, r.url).Output()
	if err != nil {
		return o, fmt.Errorf("running wrk: %w", err)
	}
	_, result, _ := strings.Cut(string(out), "RESULT ")
	if err := json.Unmarshal([]byte(result), &o); err != nil {
		return o, fmt.Errorf("reading what wrk says: %w\n%s", err, out)
	}
	switch {
	case o.Bad > 0:
		return o, fmt.Errorf("%d of %d requests failed", o.Bad, o.Bad+o.Requests)
	case o.Requests == 0:
		return o, errStill
	}
	return o, nil
}
