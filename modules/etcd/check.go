package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

const wantEndpoint = "a URL such as https://10.0.0.1:2379"

// check returns an error for invalid settings. Placeholders have been replaced.
func (e *Engine) check() error {
	switch {
	case len(e.Endpoints) == 0:
		return errors.New("endpoints: none; expected at least one, " + wantEndpoint)
	case (e.Username == "") != (e.Password == ""):
		return errors.New("expected username and password, both or neither")
	}
	secure := strings.HasPrefix(e.Endpoints[0], "https:")
	for _, endpoint := range e.Endpoints {
		if err := checkEndpoint(endpoint); err != nil {
			return err
		}
		if strings.HasPrefix(endpoint, "https:") != secure {
			return fmt.Errorf("endpoints %q and %q: expected all http or all https", e.Endpoints[0], endpoint)
		}
	}
	if e.TLS != nil && !secure {
		return fmt.Errorf("tls: endpoint %q is not https", e.Endpoints[0])
	}
	return e.Common.Check()
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("endpoints %q: expected %s", endpoint, wantEndpoint)
	}
	return nil
}

// withPort adds the default port to a checked endpoint, and removes a trailing slash.
func withPort(endpoint string) string {
	u, _ := url.Parse(endpoint)
	u.Path = ""
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "2379")
	}
	return u.String()
}
