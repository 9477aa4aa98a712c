//go:build unix && !race

package integration_test

const raceDetector = false
