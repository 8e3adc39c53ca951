package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// signInTime is what a sign-in gets without --timeout: the User has to read, type and decide.
const signInTime = 15 * time.Minute

func signInCommand(f *flags) *cobra.Command {
	var (
		opts      SignInOptions
		noBrowser bool
		file      string
	)
	do := f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
		out := cmd.OutOrStdout()
		if f.json {
			out = cmd.ErrOrStderr() // the standard output is for programs
		}
		person := newTerminal(cmd.InOrStdin(), out)
		opts.Browser = !noBrowser
		if file != "" || person.tty == nil {
			opts.Credentials = func(context.Context) (map[string]string, error) { return readCredentials(file, person) }
		}
		r, err := a.SignIn(ctx, args[0], opts, person)
		if err != nil {
			return err
		}
		how := "You are signed in at " + r.Company
		if r.Type == "" {
			how = "You were signed in already at " + r.Company
		}
		f.say(cmd, "\n%s with %s, %s.\n", how, strings.Join(r.Granted, " "), formatEnd(r.Expires))
		if missing := r.Missing(); len(missing) > 0 {
			f.say(cmd, "Not granted: %s.\n", strings.Join(missing, " "))
		}
		return nil
	})
	cmd := &cobra.Command{
		Use:   "sign-in DOMAIN",
		Short: "Sign in to the User's account at a Company",
		Long: "Signs in by one of the types that the Company offers (section 4.4). With direct, the User signs in in their\n" +
			"browser, which comes back to the agent; with device, on any device, with a code; with mediated, they give\n" +
			"the agent what the Company asks for. The Account Token is kept in --dir, for the later commands.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			if opts.Language != "" && !regexp.MustCompile(`^[A-Za-z0-9]{1,8}(-[A-Za-z0-9]{1,8})*$`).MatchString(opts.Language) {
				return fail(ExitUsage, "4.5", "--language %q: a language tag such as de or pt-BR is wanted", opts.Language)
			}
			if file != "" && opts.Type == "" {
				opts.Type = SignInMediated
			}
			if !cmd.Flags().Changed("timeout") {
				f.timeout = signInTime
			}
			return do(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.Type, "type", "", "direct, device or mediated (default: the first of them that is offered for the scopes)")
	fl.StringVar(&opts.Scope, "scope", "", "the scopes to ask for, with spaces between them (default: all that the type can grant)")
	fl.BoolVar(&opts.Again, "again", false, "sign in anew, also where the agent has an Account Token for these scopes")
	fl.BoolVar(&noBrowser, "no-browser", false, "only print the link")
	fl.StringVar(&opts.Language, "language", "", "language of the Company's pages, such as de, for Direct Sign-In")
	fl.StringVar(&file, "credentials-file", "", "JSON `file` with the credentials of Mediated Sign-In, - for the standard input")
	return cmd
}

// readCredentials reads the credentials from file, or from the standard input, where a
// one-time code may follow them in a line of its own.
func readCredentials(file string, person *terminal) (map[string]string, error) {
	var raw []byte
	var err error
	if file == "" || file == "-" {
		raw, err = person.readObject()
	} else {
		raw, err = readLimited(file)
	}
	if err != nil {
		return nil, fail(ExitUsage, "4.7", "the credentials").because(err)
	}
	return ParseCredentials(raw)
}

func readLimited(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, lineLimit))
}

func accountsCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "accounts [DOMAIN]",
		Short: "List where the User is signed in",
		Args:  cobra.MaximumNArgs(1),
		RunE: f.run(false, func(_ context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			list, err := a.Accounts(strings.Join(args, ""))
			if err != nil {
				return err
			}
			for _, i := range list {
				end := formatEnd(i.Expires)
				if i.Over {
					end += " (over)"
				}
				detail := fmt.Sprintf("%s, scope %s, since %s, %s", i.Issuer, i.Scope, i.Since.Format(time.RFC3339), end)
				if f.json {
					a.report(Step{Section: "4.8", Title: "Signed in at " + i.Domain, OK: !i.Over, Detail: detail})
					continue
				}
				fmt.Fprintln(cmd.OutOrStdout(), printable(i.Domain+"  "+i.Company+", "+detail))
			}
			if len(list) == 0 {
				f.say(cmd, "You are not signed in anywhere that this agent knows of.\n")
			}
			return nil
		}),
	}
}

func refreshCommand(f *flags) *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "refresh DOMAIN",
		Short: "Renew the Session Token with the Account Token, or narrow the Session to fewer scopes",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			s, err := a.Refresh(ctx, args[0], scope)
			if err == nil {
				f.say(cmd, "\nSession %s, %s, token until %s.\n", s.ID, s.standing(), s.Expires.Format(time.RFC3339))
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&scope, "scope", "", "fewer scopes for the Session, until the next refresh without --scope")
	return cmd
}

func signOutCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "sign-out DOMAIN",
		Short: "Sign out at a Company: the Account Token is revoked and forgotten",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			s, err := a.SignOut(ctx, args[0])
			if err == nil {
				f.say(cmd, "\nSigned out. Session %s goes on %s.\n", s.ID, s.standing())
			}
			return err
		}),
	}
}
