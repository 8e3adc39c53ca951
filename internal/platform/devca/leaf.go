package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	leafLife = 30 * 24 * time.Hour
	// maxLeaves bounds the certificates kept; allow functions may accept endless names.
	maxLeaves = 256
)

type leaf struct {
	cert  *tls.Certificate
	renew time.Time
}

// Issue makes a certificate for servers with the given DNS names and IP addresses,
// valid for 30 days, with a fresh key that never leaves memory. IP addresses have to be loopback.
func (c *CA) Issue(names ...string) (*tls.Certificate, error) {
	if len(names) == 0 {
		return nil, errors.New("dev CA: a certificate needs a name")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("dev CA: %w", err)
	}
	now := c.now()
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Poppyfield"}, CommonName: "Poppyfield development"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              earlier(now.Add(leafLife), c.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			if !ip.IsLoopback() {
				return nil, fmt.Errorf("dev CA: %s is not a loopback address", name)
			}
			t.IPAddresses = append(t.IPAddresses, ip)
			continue
		}
		if name == "" || len(name) > 253 {
			return nil, fmt.Errorf("dev CA: %q is not a name", name)
		}
		t.DNSNames = append(t.DNSNames, name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("dev CA: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, c.cert, &key.PublicKey, c.key)
	if err != nil {
		return nil, fmt.Errorf("dev CA: issuing for %q: %w", names, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("dev CA: issuing for %q: %w", names, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, c.cert.Raw}, PrivateKey: key, Leaf: parsed}, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ServerConfig returns a TLS config whose certificates are issued as clients ask
// for names. allow gets the name in lower case without trailing dot; a name it
// does not accept gets no handshake. A client that names nothing, as clients do
// that were given an IP address, gets a certificate for the loopback addresses
// and localhost, provided that it came in by one of them.
func (c *CA) ServerConfig(allow func(name string) bool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			if name == "" {
				if !loopback(hello.Conn) {
					return nil, errors.New("dev CA: the client named no server")
				}
				return c.cached("127.0.0.1", "::1", "localhost")
			}
			if !allow(name) {
				return nil, fmt.Errorf("dev CA: %q is not served here", name)
			}
			return c.cached(name)
		},
	}
}

func loopback(conn net.Conn) bool {
	if conn == nil {
		return false
	}
	a, ok := conn.LocalAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// cached returns a certificate for names that lasts for half its life at least.
func (c *CA) cached(names ...string) (*tls.Certificate, error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.leaves[names[0]]; ok && now.Before(l.renew) {
		return l.cert, nil
	}
	cert, err := c.Issue(names...)
	if err != nil {
		return nil, err
	}
	if len(c.leaves) >= maxLeaves {
		clear(c.leaves)
	}
	c.leaves[names[0]] = leaf{cert: cert, renew: now.Add(leafLife / 2)}
	return cert, nil
}

// ClientConfig returns a TLS config that trusts this CA beside the system's.
func (c *CA) ClientConfig() (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("dev CA: system certificate authorities: %w", err)
	}
	pool.AddCert(c.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}
