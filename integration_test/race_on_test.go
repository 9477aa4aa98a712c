//go:build unix && race

package integration_test

// With the race detector on, Caddy is built with it, too.
const raceDetector = true
