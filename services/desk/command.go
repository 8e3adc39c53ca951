package desk

import (
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Command returns `poppyfield desk`.
func Command() *cobra.Command {
	var o Options
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "desk [COMPANY]",
		Short: "A terminal inbox: take conversations over from the company's agent",
		Long: "A person at a Company sits down at its inbox: sees who waits for a person, joins conversations, answers, and gives\n" +
			"them back. While it is open that person counts as there. Commands are read from the terminal, or from a pipe: then each\n" +
			"waits for what it needs, and the first that fails ends it.",
		Example: "  poppyfield desk --dev .data --as anna\n" +
			"  printf 'join 1\\nHello, I am Anna.\\nwait\\nback\\n' | poppyfield desk --dev .data --as anna\n" +
			"  poppyfield desk --api https://api.example.com --key-file key --company companies/cmp_… --as anna",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			if len(args) == 1 {
				if o.Company != "" {
					return wrong("the Company is named twice")
				}
				o.Company = args[0]
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			api, company, err := connect(ctx, o)
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			f, ok := in.(*os.File)
			d := &Desk{api: api, company: company, person: o.Person, out: cmd.OutOrStdout(), wait: wait, scripted: !ok || !term.IsTerminal(int(f.Fd()))}
			return d.Run(ctx, in)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Person, "as", "", "the `name` that the Company knows you by")
	fl.StringVar(&o.Dev, "dev", "", "data `directory` of a running poppyfield dev: its API, its demo Company, or the one whose domain is given")
	fl.StringVar(&o.API, "api", "", "`origin` of the admin API")
	fl.StringVar(&o.KeyFile, "key-file", "", "`file` with an API key that holds inbox.read, inbox.act and conversations.read")
	fl.StringVar(&o.Company, "company", "", "`name` of the Company, companies/cmp_…")
	fl.StringArrayVar(&o.Trust, "trust-ca", nil, "PEM `file` of a CA to trust beside the system's (repeatable)")
	fl.DurationVar(&wait, "wait", time.Minute, "from a pipe: how long a command waits for what it needs")
	return cmd
}
