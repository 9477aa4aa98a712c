package uniqueids

import (
	"fmt"
	"net/netip"

	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func checkLayout(layout string) error {
	if _, err := uniqueid.ParseLayout(layout); err != nil {
		return fmt.Errorf("layout %q: expected classic, threaded or modern", layout)
	}
	return nil
}

func checkNode(node string) error {
	if node == nodeAuto || node == nodeRandom {
		return nil
	}
	if addr, err := netip.ParseAddr(node); err != nil || !addr.Is4() {
		return fmt.Errorf("node %q: expected auto, random or an IPv4 address", node)
	}
	return nil
}

func checkShards(shards int) error {
	if shards < 1 || shards > uniqueid.MaxShards {
		return fmt.Errorf("shards %d: expected a whole number from 1 to %d", shards, uniqueid.MaxShards)
	}
	return nil
}

func checkTrust(header string) error {
	if !httpguts.ValidHeaderFieldName(header) && header != "" {
		return fmt.Errorf("trust %q: expected the name of a request header field, such as X-Request-Id", header)
	}
	return nil
}
