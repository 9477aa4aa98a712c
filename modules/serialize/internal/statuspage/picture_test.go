package statuspage

import (
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

// The words beside the picture say when trouble began.
func TestPicture(t *testing.T) {
	now := time.Date(2027, 1, 15, 3, 0, 30, 0, time.UTC)
	type samples = []telemetry.Sample
	for _, c := range []struct {
		name    string
		samples samples
		words   string
		refused string
	}{
		{"quiet", samples{{}, {}}, "Since 03:00:25 UTC, every 5s: at most 0 waited; at most 0 inside; 0 refused.", ""},
		{"still waiting", samples{{Inside: 1}, {Inside: 1, Waiting: 7, Refused: 2}, {Refused: 1, Waiting: 3}},
			"Since 03:00:20 UTC, every 5s: at most 7 waited; at most 1 inside; 3 refused, the first at 03:00:25. Somebody has waited since 03:00:25.", "M1 0V7M2 0V7"},
		{"over", samples{{Waiting: 1}, {}}, "Since 03:00:25 UTC, every 5s: at most 1 waited; at most 0 inside; 0 refused.", ""},
		{"all the time", samples{{Waiting: 1}, {Waiting: 1}},
			"Since 03:00:25 UTC, every 5s: at most 1 waited; at most 0 inside; 0 refused. Somebody has waited since 03:00:25.", ""},
	} {
		q := &Queue{History: c.samples}
		page, err := Render(New(now, []*Queue{q}, ""))
		if q.Picture.Words != c.words || !strings.Contains(string(page), `d="`+c.refused+`"`) {
			t.Errorf("%s: %q, %v; expected %q, %q", c.name, q.Picture.Words, q.Picture.Refused, c.words, c.refused)
		}
		if err != nil || !strings.Contains(string(page), "<figcaption>"+c.words) {
			t.Errorf("%s: the page does not say so: %v", c.name, err)
		}
	}
	if p := newPicture(samples{{Waiting: 2, Inside: 1}, {Waiting: 4}}, now); p.Height != 4 || p.Waiting != " 0,2 1,4" || p.Inside != " 0,1 1,0" {
		t.Errorf("the picture has %q and %q", p.Waiting, p.Inside)
	}
}
