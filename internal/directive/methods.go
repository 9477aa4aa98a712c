package directive

import (
	"fmt"
	"slices"
	"strings"
)

// normalMethods returns the methods, which are separated by spaces or commas, in upper case and each once.
func normalMethods(texts []string) (normal []string) {
	text := strings.ReplaceAll(strings.Join(texts, " "), ",", " ")
	for _, method := range strings.Fields(strings.ToUpper(text)) {
		if !slices.Contains(normal, method) {
			normal = append(normal, method)
		}
	}
	return normal
}

// checkMethods returns an error for a text that is no method.
func checkMethods(name string, methods []string) error {
	for _, method := range methods {
		if strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return fmt.Errorf("%s: %q is not a request method; expected names such as GET, separated by spaces or commas", name, method)
		}
	}
	return nil
}
