//go:build race

package serializer

const raceDetector = true
