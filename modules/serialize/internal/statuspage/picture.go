package statuspage

import (
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

// Picture is a drawing of a queue's last ten minutes, and the same in words. It answers when
// trouble began. A unit is a sample wide and a request high, and the page scales that.
type Picture struct {
	Width, Height int
	Waiting       string // points of an area
	Inside        string // points of a line
	Refused       []int  // the samples in which requests were refused: a stroke for each
	Words         string
}

// newPicture draws samples, of which the last one is of now.
func newPicture(samples []telemetry.Sample, now time.Time) *Picture {
	p := &Picture{Width: len(samples) - 1, Height: 1, Words: inWords(samples, now)}
	for x, s := range samples {
		p.Height = max(p.Height, int(s.Waiting), int(s.Inside))
		p.Waiting += fmt.Sprintf(" %d,%d", x, s.Waiting)
		p.Inside += fmt.Sprintf(" %d,%d", x, s.Inside)
		if s.Refused > 0 {
			p.Refused = append(p.Refused, x)
		}
	}
	return p
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
