package interop_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/child"
)

// names are the hosts that interop.mjs serves.
var names = []string{"agent.interop.test", "backend.interop.test"}

func TestServer_ForeignClients(t *testing.T) {
	t.Run("sqlite", foreignClients)
}

func foreignClients(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#6", "poppy-0.1/3#9",
		"poppy-0.1/3.2#4", "poppy-0.1/3.2#5", "poppy-0.1/3.2#8", "poppy-0.1/3.2#11",
		"poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#14", "poppy-0.1/4.1#15",
		"poppy-0.1/4.1#d4", "poppy-0.1/4.2#5", "poppy-0.1/4.2#9", "poppy-0.1/4.2#24", "poppy-0.1/4.2#27", "poppy-0.1/4.2#29",
		"poppy-0.1/4.2#31", "poppy-0.1/4.2#37", "poppy-0.1/4.2#38", "poppy-0.1/4.2#40", "poppy-0.1/4.2#63", "poppy-0.1/4.2#64",
		"poppy-0.1/4.3#1", "poppy-0.1/4.3#2", "poppy-0.1/4.3#24", "poppy-0.1/7.3#1", "poppy-0.1/7.3#2", "poppy-0.1/7.5#2",
	)
	clausetest.Refuses(t,
		"poppy-0.1/4.1#14", "poppy-0.1/4.2#16", "poppy-0.1/4.2#20", "poppy-0.1/4.2#21", "poppy-0.1/4.2#51", "poppy-0.1/4.2#53",
		"poppy-0.1/4.2#54", "poppy-0.1/4.2#55",
	)
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign clients run on Node.js: run `make setup`")
	require.DirExists(t, "node_modules", "run `make setup`")

	dir := t.TempDir()
	tls := makeCertificate(t, dir)
	port := strconv.Itoa(freePort(t))
	ready := startServer(t, dir, tls.ca, port)

	out, err := exec.CommandContext(t.Context(), node, "interop.mjs", ready, port, tls.certificate, tls.key).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// startServer starts the built binary with data in dir and returns its ready file.
func startServer(t *testing.T, dir, ca, port string) string {
	t.Helper()
	binary := os.Getenv("POPPYFIELD_BIN")
	if binary == "" {
		binary = filepath.Join("..", "..", ".bin", "poppyfield")
	}
	require.FileExists(t, binary, "run `make build`")
	ready := filepath.Join(dir, "ready.json")
	args := []string{
		"dev", "--data-dir", filepath.Join(dir, "data"), "--ready-file", ready,
		"--listen", "127.0.0.1:" + strconv.Itoa(freePort(t)), "--trust-ca", ca,
	}
	for _, name := range names {
		args = append(args, "--dev-host", name+"=127.0.0.1:"+port)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	p, err := child.Start(child.Spec{Path: binary, Args: args, Output: log})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Stop(30*time.Second))
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			require.NoError(t, err)
			t.Logf("the server's log:\n%s", text)
		}
		require.NoError(t, log.Close())
	})
	require.Eventually(t, func() bool {
		select {
		case <-p.Done():
			t.Errorf("the server ended: %v", p.Wait())
			return true
		default:
			_, err := os.Stat(ready)
			return err == nil
		}
	}, 60*time.Second, 20*time.Millisecond)
	require.FileExists(t, ready)
	return ready
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// files are PEM files of a certificate for names and the CA that issued it.
type files struct{ ca, certificate, key string }

func makeCertificate(t *testing.T, dir string) files {
	t.Helper()
	now := time.Now()
	caKey, leafKey := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Interop CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	require.NoError(t, err)
	return files{
		ca:          writePEM(t, dir, "interop-ca.pem", "CERTIFICATE", caDER),
		certificate: writePEM(t, dir, "interop.pem", "CERTIFICATE", leafDER),
		key:         writePEM(t, dir, "interop.key", "PRIVATE KEY", keyDER),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func writePEM(t *testing.T, dir, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
