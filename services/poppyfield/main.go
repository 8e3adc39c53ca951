// Command poppyfield is every part of the product in one binary: the services, the
// development installation, the migrations and a personal agent to try them with.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/poppyfield/poppyfield/services/agent"
	"github.com/poppyfield/poppyfield/services/desk"
	"github.com/poppyfield/poppyfield/services/guard"
)

var version = "devel" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	root := &cobra.Command{
		Use:           "poppyfield",
		Short:         "Hosts the company side of the Personal Agent Protocol for many Companies",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(devCommand(), serveCommand(), migrateCommand(), operatorKeyCommand(), agent.Command(), desk.Command(), guard.Command())
	strict(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "poppyfield:", err)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}
