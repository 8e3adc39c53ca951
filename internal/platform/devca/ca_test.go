package devca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)} }

func TestLoad_CreatesOnceAndLoadsAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	c := newClock()
	first, err := Load(dir, c.now)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "ca.pem"), first.File())
	text, err := os.ReadFile(first.File())
	require.NoError(t, err)
	require.Equal(t, text, first.PEM())
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.True(t, first.cert.IsCA)
	require.Equal(t, c.now().Add(caLife), first.cert.NotAfter)

	second, err := Load(dir, c.now)
	require.NoError(t, err)
	require.Equal(t, first.PEM(), second.PEM())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 2, "temporary files stayed behind")
}

func TestLoad_TwoAtOnceEndWithOneCA(t *testing.T) {
	dir := t.TempDir()
	c := newClock()
	cas := make([]*CA, 8)
	errs := make([]error, len(cas))
	var wg sync.WaitGroup
	for i := range cas {
		wg.Go(func() { cas[i], errs[i] = Load(dir, c.now) })
	}
	wg.Wait()
	for i := range cas {
		require.NoError(t, errs[i])
		require.Equal(t, cas[0].PEM(), cas[i].PEM())
	}
}

func TestLoad_RefusesDamagedFiles(t *testing.T) {
	c := newClock()
	build := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		_, err := Load(dir, c.now)
		require.NoError(t, err)
		return dir
	}
	t.Run("key of another", func(t *testing.T) {
		dir := build(t)
		text, err := newKey()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, keyName), text, 0o600))
		_, err = Load(dir, c.now)
		require.ErrorContains(t, err, "does not belong")
	})
	t.Run("open key", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			return // no such modes there
		}
		dir := build(t)
		require.NoError(t, os.Chmod(filepath.Join(dir, keyName), 0o644))
		_, err := Load(dir, c.now)
		require.ErrorContains(t, err, "0600")
	})
	for _, name := range []string{keyName, certName} {
		t.Run("no PEM in "+name, func(t *testing.T) {
			dir := build(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("nothing"), 0o600))
			_, err := Load(dir, c.now)
			require.ErrorContains(t, err, "PEM")
		})
	}
	t.Run("expired", func(t *testing.T) {
		dir := build(t)
		_, err := Load(dir, func() time.Time { return c.now().Add(caLife + time.Hour) })
		require.ErrorContains(t, err, "not valid at this time")
	})
	t.Run("no clock", func(t *testing.T) {
		_, err := Load(t.TempDir(), nil)
		require.Error(t, err)
	})
	t.Run("directory is a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err := Load(file, c.now)
		require.Error(t, err)
	})
}

// shake connects to a server with cfg on addr and returns the certificate that the client got.
func shake(t *testing.T, addr string, server, client *tls.Config) (*x509.Certificate, error) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = tls.Server(conn, server).Handshake()
		_ = conn.Close()
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	<-done
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // test
	return conn.ConnectionState().PeerCertificates[0], nil
}

func TestServerConfig_ServesAllowedNamesAlone(t *testing.T) {
	c := newClock()
	ca, err := Load(t.TempDir(), c.now)
	require.NoError(t, err)
	var asked []string
	server := ca.ServerConfig(func(name string) bool {
		asked = append(asked, name)
		return name == "shop.localhost" || name == "x.example"
	})
	client := func(name string) *tls.Config {
		return &tls.Config{ServerName: name, RootCAs: ca.Pool(), Time: c.now}
	}
	for _, name := range []string{"shop.localhost", "SHOP.localhost", "x.example"} {
		cert, err := shake(t, "127.0.0.1:0", server, client(name))
		require.NoError(t, err, name)
		require.Len(t, cert.DNSNames, 1)
		require.Empty(t, cert.IPAddresses)
	}
	require.Equal(t, []string{"shop.localhost", "shop.localhost", "x.example"}, asked)
	_, err = shake(t, "127.0.0.1:0", server, client("other.localhost"))
	require.Error(t, err)
	// A CA of another directory is not trusted.
	other, err := Load(t.TempDir(), c.now)
	require.NoError(t, err)
	_, err = shake(t, "127.0.0.1:0", server, &tls.Config{ServerName: "shop.localhost", RootCAs: other.Pool(), Time: c.now})
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
}

func TestServerConfig_LoopbackWithoutName(t *testing.T) {
	c := newClock()
	ca, err := Load(t.TempDir(), c.now)
	require.NoError(t, err)
	server := ca.ServerConfig(func(string) bool { return false })
	cert, err := shake(t, "127.0.0.1:0", server, &tls.Config{ServerName: "127.0.0.1", RootCAs: ca.Pool(), Time: c.now})
	require.NoError(t, err)
	require.NoError(t, cert.VerifyHostname("localhost"))
	require.NoError(t, cert.VerifyHostname("[::1]"))
	require.Error(t, cert.VerifyHostname("10.0.0.1"))
	_, err = server.GetCertificate(&tls.ClientHelloInfo{})
	require.Error(t, err)
}

func TestServerConfig_CertificatesAreKeptAndRenewed(t *testing.T) {
	c := newClock()
	ca, err := Load(t.TempDir(), c.now)
	require.NoError(t, err)
	get := func(name string) *tls.Certificate {
		cert, err := ca.ServerConfig(func(string) bool { return true }).GetCertificate(&tls.ClientHelloInfo{ServerName: name})
		require.NoError(t, err)
		return cert
	}
	first := get("a.localhost")
	require.Same(t, first, get("A.localhost."))
	c.add(leafLife / 2)
	renewed := get("a.localhost")
	require.NotSame(t, first, renewed)
	require.True(t, renewed.Leaf.NotAfter.After(first.Leaf.NotAfter))
	for i := range maxLeaves + 10 {
		get(string(rune('a'+i%26)) + string(rune('a'+i/26)) + ".example")
	}
	require.LessOrEqual(t, len(ca.leaves), maxLeaves)
}

func TestIssue(t *testing.T) {
	c := newClock()
	ca, err := Load(t.TempDir(), c.now)
	require.NoError(t, err)
	cert, err := ca.Issue("a.localhost", "127.0.0.1")
	require.NoError(t, err)
	_, err = cert.Leaf.Verify(x509.VerifyOptions{DNSName: "a.localhost", Roots: ca.Pool(), CurrentTime: c.now()})
	require.NoError(t, err)
	require.False(t, cert.Leaf.IsCA)
	for _, names := range [][]string{{}, {"10.0.0.1"}, {""}, {"a.localhost", "8.8.8.8"}} {
		_, err = ca.Issue(names...)
		require.Error(t, err, names)
	}
	// Near the end of the CA a certificate does not outlive it.
	c.add(caLife - time.Hour)
	cert, err = ca.Issue("a.localhost")
	require.NoError(t, err)
	require.Equal(t, ca.cert.NotAfter, cert.Leaf.NotAfter)
	cfg, err := ca.ClientConfig()
	require.NoError(t, err)
	require.NotNil(t, cfg.RootCAs)
}
