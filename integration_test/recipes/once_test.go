package recipes

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A request that comes twice reaches the application once, as the recipes of the page say.
func TestOnceRecipes(t *testing.T) {
	for _, c := range []struct {
		heading, path string
		bodies        [2]string
		header        []string
		refused       []string // instead of that header
		status        int
	}{
		{"An interface", "orders", [2]string{"tea", "tea"}, append(as("anna"), "Idempotency-Key", `"7f3a90c2"`), as("anna"), 400},
		{"A form", "buy?key=7f3a90c2", [2]string{"item=tea", "item=tea"}, []string{"Cookie", "session=a"}, nil, 400},
		{"Uploads", "upload?key=7f3a90c2", [2]string{"--one", "--two"}, nil, nil, 0},
	} {
		t.Run(c.heading, func(t *testing.T) {
			k := cookText(t, blocks(t, "once.md", c.heading, "caddyfile")[0])
			var answers []<-chan testcaddy.Answer
			for _, body := range c.bodies {
				answers = append(answers, testcaddy.Send(t, http.MethodPost, k.url+c.path, body, c.header...))
			}
			name, _, _ := strings.Cut(c.path, "?")
			k.awaitTickets(t, "orderly_once_", 2)
			k.Next(name).Leave()
			replayed := 0
			for _, answer := range answers {
				if want(t, answer, 200, "served "+name).Header.Get("Idempotent-Replayed") == "true" {
					replayed++
				}
			}
			if replayed != 1 || len(k.Order()) != 1 {
				t.Errorf("%d repetitions; the application had %q", replayed, k.Order())
			}
			if c.status != 0 {
				want(t, testcaddy.Send(t, http.MethodPost, k.url+c.path, c.bodies[0], c.refused...), c.status, "")
			}
		})
	}
}
