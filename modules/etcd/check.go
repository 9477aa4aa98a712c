package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

const wantEndpoint = "a URL such as https://10.0.0.1:2379, and the options username and password"

// check returns an error for invalid settings. Placeholders have been replaced, and
// endpoints are normalized.
func (e *Engine) check() error {
	switch {
	case len(e.Endpoints) == 0:
		return errors.New("endpoints: none; expected at least one, " + wantEndpoint)
	case (e.Username == "") != (e.Password == ""):
		return errors.New("expected username and password, both or neither")
	case strings.Contains(e.Namespace, "/!"):
		return fmt.Errorf("namespace %q: expected none with /!, which begins other keys of the namespace before it", e.Namespace)
	}
	secure := strings.HasPrefix(e.Endpoints[0], "https:")
	for _, endpoint := range e.Endpoints {
		if strings.HasPrefix(endpoint, "https:") != secure {
			return fmt.Errorf("endpoints %q and %q: expected all http or all https", e.Endpoints[0], endpoint)
		}
	}
	if e.TLS != nil && !secure {
		return fmt.Errorf("tls: endpoint %q is not https", e.Endpoints[0])
	}
	return e.Common.Check()
}

// normalized adds the default port to an endpoint, removes a trailing slash, and writes the
// scheme in lower case. Errors do not quote the endpoint: it may have a password.
func normalized(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("endpoints: expected " + wantEndpoint)
	}
	u.Path = ""
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "2379")
	}
	return u.String(), nil
}
