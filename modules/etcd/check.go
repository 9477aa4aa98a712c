package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

const (
	defaultPort = "2379"

	wantEndpoint  = "a URL such as https://10.0.0.1:2379"
	wantNamespace = "1 to 200 characters without spaces"
	wantTTL       = "whole seconds from 2s to 1h, such as 10s"
	wantLogin     = "username and password, both or neither"
)

// check returns an error for invalid settings. Placeholders have been replaced.
func (e *Engine) check() error {
	if len(e.Endpoints) == 0 {
		return errors.New("endpoints: none; expected at least one, " + wantEndpoint)
	}
	for _, endpoint := range e.Endpoints {
		if err := checkEndpoint(endpoint); err != nil {
			return err
		}
		if strings.HasPrefix(endpoint, "https:") != e.secure() {
			return fmt.Errorf("endpoints %q and %q: expected all http or all https", e.Endpoints[0], endpoint)
		}
	}
	if e.Namespace != "" {
		if err := checkNamespace(e.Namespace); err != nil {
			return err
		}
	}
	if e.TTL != 0 {
		if err := checkTTL(time.Duration(e.TTL)); err != nil {
			return err
		}
	}
	if (e.Username == "") != (e.Password == "") {
		return errors.New("expected " + wantLogin)
	}
	if e.TLS == nil {
		return nil
	}
	if !e.secure() {
		return fmt.Errorf("tls: endpoint %q is not https", e.Endpoints[0])
	}
	return e.TLS.check()
}

// secure reports whether the endpoints are https.
func (e *Engine) secure() bool { return strings.HasPrefix(e.Endpoints[0], "https:") }

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
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	u.Path = ""
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return u.String()
}

func checkNamespace(text string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if strings.Trim(text, "/") == "" || len(text) > 200 || strings.ContainsFunc(text, bad) {
		return fmt.Errorf("namespace %q: expected %s", text, wantNamespace)
	}
	return nil
}

// namespace returns the start of all keys, which ends with a slash.
func namespace(text string) string {
	if text == "" {
		return etcd.DefaultNamespace
	}
	return strings.TrimRight(text, "/") + "/"
}

func checkTTL(ttl time.Duration) error {
	if ttl < etcd.MinTTL || ttl > etcd.MaxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("ttl %s: expected %s", ttl, wantTTL)
	}
	return nil
}
