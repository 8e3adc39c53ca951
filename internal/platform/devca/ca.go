package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	certName = "ca.pem"
	keyName  = "ca.key"

	caLife = 10 * 365 * 24 * time.Hour
	// backdate keeps a clock that runs a little behind from refusing a new certificate.
	backdate = time.Hour
)

// CA is a certificate authority with its key. It is safe for concurrent use.
type CA struct {
	file string
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time

	mu     sync.Mutex
	leaves map[string]leaf
}

// Load reads the CA of dir, creating what is missing: the directory, ca.key (mode
// 0600, ECDSA P-256) and ca.pem (valid for 10 years). Two processes that start on
// the same empty directory end with the same CA. A key that others may read, a
// certificate that does not belong to the key, or one that has expired is an error:
// replacing it silently would leave its users with a CA they trust for nothing.
func Load(dir string, now func() time.Time) (*CA, error) {
	if now == nil {
		return nil, errors.New("dev CA: no clock")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("dev CA: %w", err)
	}
	key, err := loadKey(filepath.Join(dir, keyName))
	if err != nil {
		return nil, fmt.Errorf("dev CA: %w", err)
	}
	file := filepath.Join(dir, certName)
	text, err := readOrCreate(file, 0o644, func() ([]byte, error) { return selfSigned(key, now()) })
	if err != nil {
		return nil, fmt.Errorf("dev CA: %w", err)
	}
	cert, err := parseCert(text)
	if err != nil {
		return nil, fmt.Errorf("dev CA: %s: %w", file, err)
	}
	if pub, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(&key.PublicKey) {
		return nil, fmt.Errorf("dev CA: %s does not belong to %s; remove both to start anew", certName, keyName)
	}
	if at := now(); at.Before(cert.NotBefore) || at.After(cert.NotAfter) {
		return nil, fmt.Errorf("dev CA: %s is not valid at this time; remove it and %s to start anew", certName, keyName)
	}
	return &CA{file: file, pem: text, cert: cert, key: key, now: now, leaves: make(map[string]leaf)}, nil
}

// File returns the path of ca.pem.
func (c *CA) File() string { return c.file }

// PEM returns the CA's certificate as ca.pem has it.
func (c *CA) PEM() []byte { return append([]byte(nil), c.pem...) }

// Pool returns a pool with this CA alone.
func (c *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)
	return p
}

func loadKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := readOrCreate(file, 0o600, newKey)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %#o lets others read the key, want 0600", file, info.Mode().Perm())
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s: no private key in PEM form", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: not an ECDSA P-256 key", file)
	}
	return key, nil
}

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func selfSigned(key *ecdsa.PrivateKey, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Poppyfield"}, CommonName: "Poppyfield development CA"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func parseCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM form")
	}
	return x509.ParseCertificate(block.Bytes)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// readOrCreate returns the content of file, creating it with what build returns.
// The content appears whole and once: whoever comes second reads what the first wrote.
func readOrCreate(file string, mode fs.FileMode, build func() ([]byte, error)) ([]byte, error) {
	text, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	if text, err = build(); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // the link made below is what stays
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	err = os.Link(tmp.Name(), file)
	if errors.Is(err, fs.ErrExist) {
		return os.ReadFile(file)
	}
	return text, err
}
