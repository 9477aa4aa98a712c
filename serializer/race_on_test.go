//go:build race

package serializer_test

const raceDetector = true
