package uniqueids

import (
	"fmt"
	"net/netip"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

var settings = directive.Settings[*Handler]{
	directive.ChoiceSetting("layout", func(u *Handler) *string { return &u.Layout }, "classic", "threaded", "modern"),
	directive.TextSetting("node", "auto|random|<IPv4>", nodeAuto, "auto, random or an IPv4 address",
		func(u *Handler) *string { return &u.Node }, (*Handler).checkNode),
	directive.NumberSetting("shards", "<n>", 1, shardsRange, func(u *Handler) *int { return &u.Shards }),
	directive.TextSetting("trust", "<header>", "", "the name of a request header field",
		func(u *Handler) *string { return &u.Trust }, (*Handler).checkTrust),
	{Name: "header", Syntax: "<field> [<kind>]", Parse: (*Handler).parseHeader}, // Header.provision does the rest
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	unique_ids [<matcher>] {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	    header  <field> [<kind>]
//	}
func (u *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	return settings.ParseBlock(d, "unique_ids", u)
}

func (u *Handler) checkNode() error {
	addr, err := netip.ParseAddr(u.Node)
	if u.Node != nodeAuto && u.Node != nodeRandom && (err != nil || !addr.Is4()) {
		return fmt.Errorf("node %q: expected auto, random or an IPv4 address", u.Node)
	}
	return nil
}

var shardsRange = directive.Range{
	Least: 1, Most: uniqueid.MaxShards, Want: fmt.Sprintf("a whole number from 1 to %d", uniqueid.MaxShards),
}

func (u *Handler) checkTrust() error {
	if !httpguts.ValidHeaderFieldName(u.Trust) && u.Trust != "" {
		return fmt.Errorf("trust %q: expected the name of a request header field, such as X-Request-Id", u.Trust)
	}
	return nil
}
