package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Certificate is PEM files of a certificate and of the CA that issued it.
type Certificate struct {
	CA, Chain, Key string
}

// NewCertificate makes a CA and a certificate for names, valid for a day, in a folder
// that goes with the test.
func NewCertificate(t testing.TB, names ...string) Certificate {
	t.Helper()
	c, err := newCertificate(t.TempDir(), names)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newCertificate(dir string, names []string) (Certificate, error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of " + names[0]},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return Certificate{}, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return Certificate{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Certificate{}, err
	}
	c := Certificate{CA: filepath.Join(dir, "ca.pem"), Chain: filepath.Join(dir, "chain.pem"), Key: filepath.Join(dir, "key.pem")}
	return c, errors.Join(
		writePEM(c.CA, "CERTIFICATE", caDER), writePEM(c.Chain, "CERTIFICATE", leafDER), writePEM(c.Key, "PRIVATE KEY", keyDER))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// A Host is an HTTPS server on loopback that answers for names.
type Host struct {
	// CAFile is for --trust-ca.
	CAFile string

	names []string
	addr  string
}

// Start serves handler as all of names, on a free port of loopback, until the test ends.
func Start(t testing.TB, handler http.Handler, names ...string) *Host {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", handler, names...)
}

// StartAt is Start at an address, ip:port, that the names lead to by themselves.
func StartAt(t testing.TB, address string, handler http.Handler, names ...string) *Host {
	t.Helper()
	c := NewCertificate(t, names...)
	pair, err := tls.LoadX509KeyPair(c.Chain, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp4", address, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Who is killed in a handshake is no news.
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), ignore(<-done, http.ErrServerClosed)); err != nil {
			t.Error(err)
		}
	})
	return &Host{CAFile: c.CA, names: names, addr: l.Addr().String()}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// DevHosts are the values of --dev-host that lead the server under test here.
func (h *Host) DevHosts() []string {
	hosts := make([]string, len(h.names))
	for i, name := range h.names {
		hosts[i] = name + "=" + h.addr
	}
	return hosts
}
