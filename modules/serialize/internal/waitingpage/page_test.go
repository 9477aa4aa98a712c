package waitingpage

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestChooseLanguage(t *testing.T) {
	for accept, want := range map[string]string{
		"": "en", "*": "en", "xx": "en", "de": "de", "DE-at, en;q=0.9": "de", "sv, fr;q=0.3, it;q=0.5": "it",
		"de;q=0, fr;q=0.1": "fr", "zh-Hant-TW,zh;q=0.9": "zh-Hant", "zh-TW": "zh-Hant", "zh-hk": "zh-Hant", "zh-Hans-HK": "zh", "zh-SG": "zh", ";;,q=": "en", "pt-BR": "pt",
	} {
		if got, _ := Texts([]string{accept}); got != want {
			t.Errorf("%q: %s; expected %s", accept, got, want)
		}
	}
}

// Every language has every text, with the same gaps to fill.
func TestTextsAreWhole(t *testing.T) {
	if len(languages()) < 12 {
		t.Errorf("%d languages; expected a dozen", len(languages()))
	}
	names := slices.Sorted(maps.Keys(languages()["en"]))
	for language, texts := range languages() {
		if got := slices.Sorted(maps.Keys(texts)); !slices.Equal(got, names) {
			t.Errorf("%s: texts %v; expected %v", language, got, names)
		}
		for name, text := range texts {
			if gap := map[string]string{"number": "%d", "about": "%s", "opens": "%s", "listed": "%d"}[name]; text == "" || strings.Count(text, "%") != len(gap)/2 || !strings.Contains(text, gap) {
				t.Errorf("%s: text %s is %q", language, name, text)
			}
		}
	}
}
