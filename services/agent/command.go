package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// flags are common to all subcommands.
type flags struct {
	dir, clientID, user, dev string
	trust, resolve           []string
	json, secrets, quiet     bool
	timeout                  time.Duration
}

// Command returns `poppyfield agent` with its subcommands. Errors it returns carry the
// process's exit code; see ExitCode.
func Command() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "A real Personal Agent on the command line",
		Long: "A Personal Agent that finds a Company by its domain, checks its documents, starts a Session, talks with\n" +
			"the Company's own agent and signs in to the User's account. Every step is printed with the section of the Personal Agent Protocol\n" +
			"(draft 0.1) it belongs to; with --json, with the exact requests and responses.",
		Example: "  poppyfield agent talk noodle-bar.localhost \"Where is my order?\" --dev .data\n" +
			"  poppyfield agent sign-in noodle-bar.localhost --dev .data\n" +
			"  poppyfield agent direct noodle-bar.localhost \"Hello, it's me.\" --dev .data\n" +
			"  poppyfield agent init --client-id https://agent.example/agent.json\n" +
			"  poppyfield agent discover example.com",
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.dir, "dir", "", "directory of this agent: identity, cache, Sessions (default: in the user's config directory, with --dev in DIR/agent)")
	p.StringVar(&f.clientID, "client-id", "", "the agent's client_id, an https URL (default: the one in --dir)")
	p.StringVar(&f.user, "user", "me", "which User of this machine the agent acts for; never sent anywhere")
	p.StringVar(&f.dev, "dev", "", "data `directory` of a running poppyfield dev: trust its CA, know its hosts, publish the client document there")
	p.StringArrayVar(&f.trust, "trust-ca", nil, "PEM `file` of a CA to trust beside the system's (repeatable)")
	p.StringArrayVar(&f.resolve, "resolve", nil, "`NAME=IP[:PORT]` to connect to instead of asking DNS (repeatable)")
	p.BoolVar(&f.json, "json", false, "print one JSON object a step, with requests and responses")
	p.BoolVar(&f.secrets, "show-secrets", false, "with --json: leave tokens, proofs and assertions readable")
	p.BoolVarP(&f.quiet, "quiet", "q", false, "print only what the Company says")
	p.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long the whole command may take; 0 for no limit")
	cmd.AddCommand(initCommand(f), discoverCommand(f), sessionCommand(f), headersCommand(f), talkCommand(f), eventsCommand(f), closeCommand(f),
		handOffCommand(f), directCommand(f),
		signInCommand(f), accountsCommand(f), refreshCommand(f), signOutCommand(f))
	return cmd
}

func initCommand(f *flags) *cobra.Command {
	var profile Profile
	cmd := &cobra.Command{
		Use:   "init --client-id URL",
		Short: "Make the agent's keys and the two documents to publish",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			dir, err := f.directory()
			if err != nil {
				return err
			}
			id, err := InitIdentity(dir, f.clientID, profile)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "The agent lives in %s. Its private key, %s, stays there.\n\n", dir, keyFile)
			fmt.Fprintf(out, "Publish these two over https, as application/json, without redirects:\n")
			fmt.Fprintf(out, "  %s  at  %s\n", filepath.Join(dir, documentFile), id.ClientID)
			fmt.Fprintf(out, "  %s   at  %s\n", filepath.Join(dir, keySetFile), keySetURL(id.ClientID))
			return nil
		},
	}
	cmd.Flags().StringVar(&profile.Name, "name", "", "client_name, shown to Companies and on their pages")
	cmd.Flags().StringVar(&profile.LogoURI, "logo-uri", "", "logo_uri")
	cmd.Flags().StringArrayVar(&profile.RedirectURIs, "redirect-uri", nil, "redirect URI for Direct Sign-In (repeatable)")
	return cmd
}

func discoverCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "discover DOMAIN",
		Short: "Find a Company and make every check the protocol asks of agents",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(false, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			c, err := a.Discover(ctx, args[0])
			if err == nil {
				f.say(cmd, "\n%s at %s passed every check. Its issuer is %s.\n", c.Name(), c.Domain(), c.Issuer())
			}
			return err
		}),
	}
}

func sessionCommand(f *flags) *cobra.Command {
	var opts SessionOptions
	cmd := &cobra.Command{
		Use:   "session DOMAIN",
		Short: "Start a Session at a Company, or renew the one there is",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			s, err := a.Session(ctx, args[0], opts)
			if err == nil {
				f.say(cmd, "\nSession %s of User %s, %s, token until %s.\n", s.ID, s.UserID, s.standing(), s.Expires.Format(time.RFC3339))
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&opts.New, "new", false, "start a new Session even if there is one")
	cmd.Flags().BoolVar(&opts.SignedOut, "signed-out", false, "leave the Account Token alone")
	return cmd
}

func headersCommand(f *flags) *cobra.Command {
	var opts SessionOptions
	do := f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
		h, err := a.Headers(ctx, args[0], args[1], args[2], opts)
		if err == nil {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Authorization: %s\nDPoP: %s\n", h.Get("Authorization"), h.Get("DPoP"))
		}
		return err
	})
	cmd := &cobra.Command{
		Use:   "headers DOMAIN METHOD URL",
		Short: "Print the header fields of one request to an API of a Company, for curl -H @FILE",
		Long: "Prints the Session Token and a DPoP Proof (section 4.3), readable and good for that one request, and nothing else.\n" +
			"URL is the address that the Company lists its API by, wherever the request is sent to.",
		Example: "  poppyfield agent headers shop.example GET https://api.shop.example/orders/7 >h && curl -H @h https://api.shop.example/orders/7",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.quiet, f.json = true, false
			return do(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&opts.SignedOut, "signed-out", false, "leave the Account Token alone")
	return cmd
}

// say prints a closing line for people; scripts read the steps.
func (f *flags) say(cmd *cobra.Command, format string, args ...any) {
	if !f.json && !f.quiet {
		fmt.Fprint(cmd.OutOrStdout(), printable(fmt.Sprintf(format, args...)))
	}
}

type action func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error

// run opens the agent, gives the action its time, and closes the agent.
func (f *flags) run(identified bool, do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		if f.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, f.timeout)
			defer cancel()
		}
		a, err := f.open(ctx, cmd, identified)
		if err != nil {
			return err
		}
		defer a.Close()
		err = do(ctx, cmd, a, args)
		if err != nil && f.json {
			step := Step{Title: "Stopped", Detail: err.Error()}
			var e *Error
			if errors.As(err, &e) {
				step.Section = e.section
			}
			a.report(step)
		}
		return err
	}
}

func (f *flags) open(ctx context.Context, cmd *cobra.Command, identified bool) (*Agent, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	cfg := Config{Dir: dir, User: f.user, Clock: SystemClock{}, ShowSecrets: f.secrets, Resolve: map[string]string{}}
	if f.json {
		cfg.Reporter = NewJSONReporter(cmd.OutOrStdout())
	} else {
		cfg.Reporter = NewTextReporter(cmd.OutOrStdout(), f.quiet)
	}
	trust := f.trust
	var setup devSetup
	if f.dev != "" {
		if setup, err = readDevSetup(f.dev); err != nil {
			return nil, err
		}
		trust = append(trust, setup.CAFile)
		for name, to := range setup.Hosts {
			cfg.Resolve[strings.ToLower(name)] = to
		}
	}
	if err := addResolve(cfg.Resolve, f.resolve); err != nil {
		return nil, err
	}
	if cfg.Roots, err = loadRoots(trust); err != nil {
		return nil, err
	}
	if identified {
		if f.dev != "" && (f.clientID == "" || f.clientID == devClientID) {
			cfg.Identity, cfg.Callback, err = devIdentity(ctx, dir, setup)
		} else {
			cfg.Identity, err = LoadIdentity(dir, f.clientID)
		}
		if err != nil {
			return nil, err
		}
	}
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if identified && cfg.Identity.ClientID == devClientID && f.dev != "" {
		if err := publishDocument(ctx, setup, a); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

func (f *flags) directory() (string, error) {
	switch {
	case f.dir != "":
		return f.dir, nil
	case f.dev != "":
		return filepath.Join(f.dev, "agent"), nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fail(ExitUsage, "", "no config directory; use --dir").because(err)
	}
	return filepath.Join(base, "poppyfield", "agent"), nil
}

func addResolve(into map[string]string, list []string) error {
	for _, s := range list {
		name, to, ok := strings.Cut(s, "=")
		_, portErr := netip.ParseAddrPort(to)
		_, addrErr := netip.ParseAddr(strings.Trim(to, "[]"))
		if !ok || name == "" || (portErr != nil && addrErr != nil) {
			return fail(ExitUsage, "", "--resolve %q: NAME=IP[:PORT] is wanted", s)
		}
		into[strings.ToLower(name)] = to
	}
	return nil
}

// loadRoots returns the system's CAs with those of files.
func loadRoots(files []string) (*x509.CertPool, error) {
	if len(files) == 0 {
		return nil, nil // which crypto/tls takes for the system's CAs
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fail(ExitUsage, "", "--trust-ca").because(err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fail(ExitUsage, "", "%s holds no certificate", file)
		}
	}
	return pool, nil
}
