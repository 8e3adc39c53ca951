package agent

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func talkCommand(f *flags) *cobra.Command {
	var (
		opts      TalkOptions
		data      string
		available bool
	)
	cmd := &cobra.Command{
		Use:   "talk DOMAIN TEXT",
		Short: "Say something to a Company and print its answer; run again, the conversation goes on",
		Args:  cobra.ExactArgs(2),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			var err error
			if opts.Data, err = objectOrNil("--data", data); err != nil {
				return err
			}
			if cmd.Flags().Changed("user-available") {
				opts.UserAvailable = &available
			}
			reply, err := a.Talk(ctx, args[0], args[1], opts)
			if err == nil {
				f.conclude(cmd, reply)
			}
			return err
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.Sender, "sender", "human", "human for the User's own words, agent for words that something else wrote (7.8)")
	fl.StringVar(&data, "data", "", "structured details, a JSON object (7.4)")
	fl.StringVar(&opts.Locale, "locale", "", "share the User's language, such as de-DE (7.4)")
	fl.StringVar(&opts.TimeZone, "time-zone", "", "share the User's time zone, such as Europe/Berlin (7.4)")
	fl.BoolVar(&available, "user-available", false, "share whether the User can answer questions now (7.4)")
	fl.BoolVar(&opts.New, "new", false, "start a new conversation")
	fl.BoolVar(&opts.SignedOut, "signed-out", false, "leave the Account Token alone")
	noStreamFlag(fl, &opts.NoStream)
	return cmd
}

func noStreamFlag(fl *pflag.FlagSet, to *bool) {
	fl.BoolVar(to, "no-stream", false, "wait for whole answers, also where the Company streams (7.6)")
}

// conclude says what a turn leaves for the User to do.
func (f *flags) conclude(cmd *cobra.Command, reply Reply) {
	if len(reply.Messages) == 0 {
		f.say(cmd, "\nThe Company had nothing to say; the conversation is %s.\n", reply.Status)
	}
	if !f.quiet {
		return // a step says it
	}
	// Not what the Company says, but nothing goes on without it.
	if reply.SignIn != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), printable("The Company needs your account; run: "+reply.SignIn))
	}
	if reply.Direct != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), printable("The Company asks to talk with you yourself: "+clip(reply.Reason)+"; if you agree, run: "+reply.Direct))
	}
}

func directCommand(f *flags) *cobra.Command {
	var opts TalkOptions
	cmd := &cobra.Command{
		Use:   "direct DOMAIN [TEXT]",
		Short: "Talk with a Company yourself, beside the conversation that the agent has with it",
		Long: "Starts a Direct Conversation (section 7.10) below the open conversation, with your own words. From then on talk goes\n" +
			"there; close ends it and leads back. Without TEXT it asks for your words.",
		Args: cobra.RangeArgs(1, 2),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			var text string
			if len(args) == 2 {
				text = args[1]
			} else {
				var err error
				if text, err = newTerminal(cmd.InOrStdin(), cmd.ErrOrStderr()).Ask(ctx, "Your words", false); err != nil {
					return err
				}
			}
			reply, err := a.Direct(ctx, args[0], text, opts)
			if err == nil {
				f.conclude(cmd, reply)
			}
			return err
		}),
	}
	noStreamFlag(cmd.Flags(), &opts.NoStream)
	return cmd
}

func handOffCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "handoff DOMAIN",
		Short: "Ask for a person at a Company; talk and events --follow wait for what they say",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, cmd *cobra.Command, a *Agent, args []string) error {
			reply, err := a.HandOff(ctx, args[0])
			if err == nil && f.quiet {
				fmt.Fprintln(cmd.OutOrStdout(), printable(inWords(reply.Status, reply.Responder)))
			}
			return err
		}),
	}
}

func eventsCommand(f *flags) *cobra.Command {
	var opts EventsOptions
	cmd := &cobra.Command{
		Use:   "events DOMAIN",
		Short: "Show what happened in the conversation since it was last read",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, _ *cobra.Command, a *Agent, args []string) error {
			return a.Events(ctx, args[0], opts)
		}),
	}
	cmd.Flags().BoolVar(&opts.All, "all", false, "from the beginning")
	cmd.Flags().BoolVar(&opts.Follow, "follow", false, "wait for more until --timeout, or until the conversation is closed")
	noStreamFlag(cmd.Flags(), &opts.NoStream)
	return cmd
}

func closeCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "close DOMAIN",
		Short: "Close the conversation with a Company; in a Direct Conversation, that one, and go back to the one before it",
		Args:  cobra.ExactArgs(1),
		RunE: f.run(true, func(ctx context.Context, _ *cobra.Command, a *Agent, args []string) error {
			return a.CloseConversation(ctx, args[0])
		}),
	}
}
