package main

import "github.com/spf13/cobra"

// usageError is a mistake in the command line; the process ends with status 2.
type usageError struct{ error }

func (usageError) ExitCode() int { return 2 }

func (e usageError) Unwrap() error { return e.error }

func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// strict makes what is wrong in the command line of cmd and the commands below it a
// usageError, also what cobra answers with the help text: an unknown command.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return asUsage(err) })
	args := cmd.Args
	if args == nil {
		args = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error { return asUsage(args(cmd, given)) }
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, below := range cmd.Commands() {
		strict(below)
	}
}
