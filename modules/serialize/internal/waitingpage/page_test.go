package waitingpage

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestChooseLanguage(t *testing.T) {
	for accept, want := range map[string]string{
		"": "en", "*": "en", "xx": "en", "de": "de", "DE-at, en;q=0.9": "de", "xx, fr;q=0.3, it;q=0.5": "it",
		"de;q=0, fr;q=0.1": "fr", "zh-Hant-TW,zh;q=0.9": "zh", ";;,q=": "en", "pt-BR": "pt",
	} {
		if got := ChooseLanguage([]string{accept}); got != want {
			t.Errorf("%q: %s; expected %s", accept, got, want)
		}
	}
}

// Every language has every text, with the same gaps to fill.
func TestWaitingTextsAreWhole(t *testing.T) {
	if len(languages) < 12 {
		t.Errorf("%d languages; expected a dozen", len(languages))
	}
	for language, texts := range languages {
		for i, text := range []string{texts.heading, texts.next, texts.joining, texts.unknown, texts.paused, texts.keep, texts.reloads, texts.lost, texts.turn,
			texts.used, texts.again, texts.offline, texts.second, texts.minute, texts.hour} {
			if text == "" || strings.Contains(text, "%") {
				t.Errorf("%s: text %d is %q", language, i, text)
			}
		}
		shown := Place{Place: 1234, Estimate: 100 * time.Minute}
		for _, text := range []string{texts.Title(shown), texts.Place(shown), texts.Estimate(shown)} {
			if strings.Contains(text, "%!") || !regexp.MustCompile(`1234|1 .+ 40`).MatchString(text) {
				t.Errorf("%s: %q", language, text)
			}
		}
	}
}

func TestWaitingSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Millisecond: "10 s", 10 * time.Second: "10 s", 11 * time.Second: "20 s", time.Minute: "60 s", 61 * time.Second: "2 min",
		time.Hour: "60 min", 61 * time.Minute: "1 h 10 min", 119 * time.Minute: "2 h 0 min", 25 * time.Hour: "25 h 0 min",
	} {
		if got := languages["en"].span(d); got != want {
			t.Errorf("%v: %s; expected %s", d, got, want)
		}
	}
}

// The page comes again several times within hold, and soon when the turn is near.
func TestWaitingRefresh(t *testing.T) {
	for _, c := range []struct{ estimate, hold, want time.Duration }{
		{0, 15 * time.Second, 5 * time.Second},
		{0, time.Hour, 5 * time.Second},
		{time.Hour, 15 * time.Second, 5 * time.Second},
		{6 * time.Second, 15 * time.Second, 3 * time.Second},
		{time.Millisecond, 15 * time.Second, time.Second},
		{time.Hour, time.Second, time.Second},
		{time.Hour, time.Hour, 20 * time.Minute},
		// Bug: the header had these in whole seconds, and the end of the turn did not.
		{4040 * time.Millisecond, 15 * time.Second, 3 * time.Second},
		{time.Hour, 10 * time.Second, 3 * time.Second},
	} {
		if got := (Place{Estimate: c.estimate}).Refresh(c.hold); got != c.want {
			t.Errorf("estimate %v, hold %v: %v; expected %v", c.estimate, c.hold, got, c.want)
		}
	}
}
