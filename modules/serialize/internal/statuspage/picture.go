package statuspage

import (
	"fmt"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

// Picture is a drawing of a queue's last ten minutes, and the same in words. It answers when
// trouble began.
type Picture struct {
	Width, Height int
	Waiting       string // points of an area
	Inside        string // points of a line
	Refused       string // a path, with a stroke for each sample in which requests were refused
	Words         string
}

const pictureHeight = 30

// newPicture draws samples, of which the last one is of now.
func newPicture(samples []telemetry.Sample, now time.Time) *Picture {
	p := &Picture{Width: len(samples) - 1, Height: pictureHeight, Words: inWords(samples, now)}
	most := uint32(1)
	for _, s := range samples {
		most = max(most, s.Waiting, s.Inside)
	}
	var waiting, inside, refused strings.Builder
	fmt.Fprintf(&waiting, "0,%d", p.Height)
	for x, s := range samples {
		fmt.Fprintf(&waiting, " %d,%.1f", x, height(s.Waiting, most))
		fmt.Fprintf(&inside, " %d,%.1f", x, height(s.Inside, most))
		if s.Refused > 0 {
			fmt.Fprintf(&refused, "M%d 0v%d", x, p.Height)
		}
	}
	fmt.Fprintf(&waiting, " %d,%d", p.Width, p.Height)
	p.Waiting, p.Inside, p.Refused = waiting.String(), strings.TrimSpace(inside.String()), refused.String()
	return p
}

// height is where a number stands in the picture. Its upper edge is 0.
func height(number, most uint32) float64 {
	return pictureHeight * (1 - float64(number)/float64(most))
}

// inWords says what the picture shows.
func inWords(samples []telemetry.Sample, now time.Time) string {
	at := func(i int) string {
		return now.Add(-time.Duration(len(samples)-1-i) * telemetry.SampleInterval).UTC().Format("15:04:05")
	}
	var waiting, inside, refused uint32
	first, busy := 0, 0 // the first sample with a refusal, and that since which somebody has waited
	for i, s := range samples {
		waiting, inside = max(waiting, s.Waiting), max(inside, s.Inside)
		if refused == 0 {
			first = i
		}
		refused += s.Refused
		if s.Waiting == 0 {
			busy = i + 1
		}
	}
	text := fmt.Sprintf("Since %s UTC, every %s: at most %d waited; at most %d inside; %d refused", at(0), telemetry.SampleInterval, waiting, inside, refused)
	if refused > 0 {
		text += ", the first at " + at(first)
	}
	if busy < len(samples) {
		text += ". Somebody has waited since " + at(busy)
	}
	return text + "."
}
