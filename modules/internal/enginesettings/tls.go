package enginesettings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// TLS says how to trust the servers, and how they may trust this Caddy.
type TLS struct {
	// A file with the certificates (PEM) of the authorities that sign
	// the servers' certificates. Default: the system's.
	CA string `json:"ca,omitempty"`

	// A file with the client's certificate (PEM). It is read again for each
	// connection, so a renewed certificate needs no reload. Default: none.
	Cert string `json:"cert,omitempty"`

	// A file with the key of the client's certificate (PEM). Default: none.
	Key string `json:"key,omitempty"`

	// The name in the servers' certificates. Default: the host of the address.
	ServerName string `json:"server_name,omitempty"`
}

var tlsSettings = directive.Settings[*TLS]{
	directive.OptionalText("ca", "a PEM file", func(t *TLS) *string { return &t.CA }),
	directive.OptionalText("cert", "a PEM file", func(t *TLS) *string { return &t.Cert }),
	directive.OptionalText("key", "a PEM file", func(t *TLS) *string { return &t.Key }),
	directive.OptionalText("server_name", "a host name", func(t *TLS) *string { return &t.ServerName }),
}

// Check returns an error if only one of two settings is there that belong together, or one has
// the text of a file, perhaps a key, in place of its path.
func (t *TLS) Check() error {
	if t == nil {
		return nil
	}
	for _, s := range t.settings() {
		if strings.Contains(*s.Text, "-----BEGIN") {
			return fmt.Errorf("%s: expected the path of a PEM file, not its text", s.Name)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("tls: expected cert and key, both or neither")
	}
	return nil
}

// settings are the texts of the block.
func (t *TLS) settings() []Setting {
	return []Setting{{"tls ca", &t.CA}, {"tls cert", &t.Cert}, {"tls key", &t.Key}, {"tls server_name", &t.ServerName}}
}

// Config reads the files. Without settings, it returns nil, which means the defaults.
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	config := &tls.Config{ServerName: t.ServerName}
	if t.CA != "" {
		authorities, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("tls ca %q: found no certificate; expected a PEM file", t.CA)
		}
	}
	if t.Cert == "" {
		return config, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		certificate, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls cert %q and key %q: %w", t.Cert, t.Key, err)
		}
		return &certificate, nil
	}
	_, err := config.GetClientCertificate(nil)
	return config, err
}
