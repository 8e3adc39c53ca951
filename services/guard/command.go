package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

// keyVariable is the environment variable with the Company's API key.
const keyVariable = "POPPY_API_KEY"

const (
	headTime  = 10 * time.Second
	drainTime = 20 * time.Second
)

type flags struct {
	grpc, company, base, to, listen string
	keyFile, caFile, cert, certKey  string
	local                           bool
}

// Command returns `poppyfield guard`.
func Command() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "A reverse proxy before a Company's own API or MCP server",
		Long: "Has every request judged, refuses what agents may not ask for, and passes the rest on to --to with a signed\n" +
			"header field, " + IdentityHeader + ", that says who is asking. The Company's API key is in " + keyVariable + ".",
		Example: "  POPPY_API_KEY=pfk_… poppyfield guard --grpc api.example.net:8444 --company companies/cmp_… \\\n" +
			"    --base-url https://api.example.com --to http://127.0.0.1:3000 --listen 127.0.0.1:8080 --identity-key guard.pem",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context()) },
	}
	p := cmd.Flags()
	p.StringVar(&f.grpc, "grpc", "", "gRPC port of the admin API, such as api.example.net:8444")
	p.StringVar(&f.company, "company", "", "resource name of the Company, companies/cmp_…")
	p.StringVar(&f.base, "base-url", "", "where agents find the API, as it is listed")
	p.StringVar(&f.to, "to", "", "URL of the API itself")
	p.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the listener")
	p.StringVar(&f.cert, "cert-file", "", "PEM `file` with the listener's certificate; without it the listener is plain, for a proxy that ends TLS")
	p.StringVar(&f.certKey, "key-file", "", "PEM `file` with the certificate's key")
	p.StringVar(&f.caFile, "ca-file", "", "PEM `file` of the CA of the admin API (default: the system's)")
	p.BoolVar(&f.local, "local", false, "judge GET and HEAD here, without asking for each request; see docs/adr/0020")
	cmd.PersistentFlags().StringVar(&f.keyFile, "identity-key", "", "PEM `file` with the key that signs who is asking; made where there is none")
	for _, name := range []string{"grpc", "company", "base-url", "to"} {
		_ = cmd.MarkFlagRequired(name) // it is there
	}
	_ = cmd.MarkPersistentFlagRequired("identity-key")
	cmd.AddCommand(&cobra.Command{
		Use: "keys", Short: "Print the JWK set by which the API checks " + IdentityHeader, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := loadKey(f.keyFile)
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", key.keySet())
			}
			return err
		},
	})
	return cmd
}

func (f *flags) serve(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	to, err := url.Parse(f.to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	roots, err := f.roots()
	if err != nil {
		return err
	}
	conn, err := poppy.Dial(f.grpc, os.Getenv(keyVariable), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way by then
	verifier, err := poppy.New(ctx, poppy.Config{Company: f.company, Conn: conn, BaseURL: f.base, Local: f.local, Log: log})
	if err != nil {
		return err
	}
	defer verifier.Close()
	handler, err := New(Config{Verifier: verifier, BaseURL: f.base, To: to, KeyFile: f.keyFile, Now: clock.System, Log: log})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: f.listen, Handler: handler, ReadHeaderTimeout: headTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	over := make(chan error, 1)
	go func() {
		if f.cert != "" {
			over <- server.ListenAndServeTLS(f.cert, f.certKey)
			return
		}
		over <- server.ListenAndServe()
	}()
	log.LogAttrs(ctx, slog.LevelInfo, "guarding", slog.String("base_url", f.base), slog.String("listen", f.listen))
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close() // streams go on until then
}

func (f *flags) roots() (*x509.CertPool, error) {
	if f.caFile == "" {
		return nil, nil // which crypto/tls takes for the system's CAs
	}
	pem, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", f.caFile)
	}
	return pool, nil
}
