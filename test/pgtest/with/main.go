// Command with runs a command beside a PostgreSQL of its own, whose empty database it
// names in DEV_PG_DSN: go run ./test/pgtest/with COMMAND ARGUMENTS…
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/poppyfield/poppyfield/test/pgtest"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) (err error) {
	if len(command) == 0 {
		return errors.New("usage: with COMMAND ARGUMENTS…")
	}
	server, err := pgtest.Open(pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	url, err := server.Create(ctx, "dev")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "DEV_PG_DSN="+url+"&search_path=public")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
