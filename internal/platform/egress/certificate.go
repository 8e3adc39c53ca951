package egress

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"sync"
)

// maxCertified bounds how many client certificates keep connections open.
const maxCertified = 64

// certified holds a transport for each client certificate: a connection made with one
// must never carry a request of somebody who shows another, or none.
type certified struct {
	mu   sync.Mutex
	list []certifiedTransport // the one used last stands last
}

type certifiedTransport struct {
	fingerprint [sha256.Size]byte
	transport   *http.Transport
}

// transportFor returns the transport that shows cert. It dials as every other does.
func (c *Client) transportFor(cert *tls.Certificate) *http.Transport {
	if cert == nil {
		return c.transport
	}
	id := fingerprint(cert)
	s := &c.showing
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.list {
		if one.fingerprint == id {
			s.list = append(append(s.list[:i:i], s.list[i+1:]...), one)
			return one.transport
		}
	}
	t := c.transport.Clone()
	// A callback rather than a list: the server says no in words of its own, where the
	// library would show nothing to one that names other authorities.
	t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	s.list = append(s.list, certifiedTransport{fingerprint: id, transport: t})
	if len(s.list) > maxCertified {
		s.list[0].transport.CloseIdleConnections() // what is under way goes on
		s.list = append([]certifiedTransport(nil), s.list[1:]...)
	}
	return t
}

func (s *certified) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		one.transport.CloseIdleConnections()
	}
}

// fingerprint tells chains apart. A leaf names its key, so the key needn't be part of it.
func fingerprint(cert *tls.Certificate) [sha256.Size]byte {
	h := sha256.New()
	for _, der := range cert.Certificate {
		sum := sha256.Sum256(der)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}
