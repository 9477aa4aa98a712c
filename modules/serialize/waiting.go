package serialize

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// WaitingPage is being written anew.
type WaitingPage struct {
	After *caddy.Duration `json:"after,omitempty"`
	Hold  *caddy.Duration `json:"hold,omitempty"`
	File  string          `json:"file,omitempty"`
}

func (p *WaitingPage) fill()                                   {}
func (p *WaitingPage) check() error                            { return nil }
func (p *WaitingPage) provision(caddy.Context) error           { return nil }
func isNavigation(*http.Request) bool                          { return false }
func (s *Handler) parseWaitingPage(*caddyfile.Dispenser) error { return nil }
func (v *visit) serveNavigation(http.ResponseWriter, *http.Request, caddyhttp.Handler) error {
	return nil
}
