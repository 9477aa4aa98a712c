package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS says how to trust the cluster, and how it may trust this Caddy.
type TLS struct {
	// A file with the certificates (PEM) of the authorities that sign
	// the members' certificates. Default: the system's.
	CA string `json:"ca,omitempty"`

	// A file with the client's certificate (PEM). It is read again for each
	// connection, so a renewed certificate needs no reload. Default: none.
	Cert string `json:"cert,omitempty"`

	// A file with the key of the client's certificate (PEM). Default: none.
	Key string `json:"key,omitempty"`

	// The name in the members' certificates. Default: the host of the endpoint.
	ServerName string `json:"server_name,omitempty"`
}

// config reads the files. Without settings, it returns nil, which means the defaults.
func (t *TLS) config() (*tls.Config, error) {
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
