package bus

import (
	"errors"
	"log/slog"
)

// Config says where NATS is: at URL, or inside this process.
type Config struct {
	URL      string    // one or more nats:// or tls:// URLs, separated by commas
	Embedded *Embedded // a server of our own that listens on no port
	Name     string    // how the connection calls itself at the server

	CredentialsFile string // NATS credentials, optional
	CAFile          string // PEM of the CA that signed the server's certificate, optional
	CertFile        string // client certificate and its key, both or none
	KeyFile         string

	Log *slog.Logger // nil: nothing is logged
}

// Embedded is a NATS server with JetStream in this process, reachable from it alone.
type Embedded struct {
	StoreDir string // where JetStream keeps its files; one process at a time
}

func (c Config) check() error {
	switch {
	case c.Embedded == nil && c.URL == "":
		return errors.New("bus: neither a NATS URL nor an embedded server is configured")
	case c.Embedded != nil && c.URL != "":
		return errors.New("bus: a NATS URL and an embedded server exclude each other")
	case c.Embedded != nil && c.Embedded.StoreDir == "":
		return errors.New("bus: the embedded NATS server needs a store directory")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("bus: a client certificate needs both its file and its key's file")
	}
	return nil
}
