package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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

func (t *TLS) check() error {
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("tls: expected cert and key, both or neither")
	}
	return nil
}

// config reads the files; t may be nil.
func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return config, nil
	}
	config.ServerName = t.ServerName
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
	if _, err := t.certificate(nil); err != nil {
		return nil, err
	}
	config.GetClientCertificate = t.certificate
	return config, nil
}

func (t *TLS) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls cert %q and key %q: %w", t.Cert, t.Key, err)
	}
	return &certificate, nil
}
