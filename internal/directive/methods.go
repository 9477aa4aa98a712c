package directive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Methods parses a list of request methods, separated by spaces or commas. A blank text is none.
func Methods(d *caddyfile.Dispenser) ([]string, error) {
	name, args := d.Val(), d.RemainingArgs()
	if len(args) == 0 {
		return nil, d.Errf("%s: no value; expected request methods such as GET, separated by spaces or commas", name)
	}
	return NormalMethods(args), nil
}

// NormalMethods returns the methods in upper case, each once.
func NormalMethods(texts []string) (normal []string) {
	text := strings.ReplaceAll(strings.Join(texts, " "), ",", " ")
	for _, method := range strings.Fields(strings.ToUpper(text)) {
		if !slices.Contains(normal, method) {
			normal = append(normal, method)
		}
	}
	return normal
}

// CheckMethods returns an error for a text that is no method.
func CheckMethods(name string, methods []string) error {
	for _, method := range methods {
		if strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return fmt.Errorf("%s: %q is not a request method; expected names such as GET, separated by spaces or commas", name, method)
		}
	}
	return nil
}
