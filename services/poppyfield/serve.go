package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/services/admin"
)

// publicBody bounds the body of a public request, above what any endpoint takes: those answer with an error of their own.
const publicBody = 512 << 10

func serveCommand() *cobra.Command {
	var file string
	var services []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run services on PostgreSQL and an external NATS",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			if len(services) > 0 {
				cfg.Services = services
			}
			if err := cfg.complete(); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&file, "config", "/etc/poppyfield/config.yaml", "configuration file")
	cmd.Flags().StringSliceVar(&services, "services", nil, "services to run, or all; replaces services of the file")
	return cmd
}

func serve(ctx context.Context, cfg Config) error {
	if cfg.NATS.URL == "" {
		return errors.New("nats.url is required")
	}
	p, err := newProcess(ctx, cfg, processOptions{logWriter: os.Stdout})
	if err != nil {
		return err
	}
	surfaces, err := p.surfaces()
	if err != nil {
		return errors.Join(err, p.close(ctx))
	}
	if err := p.start(ctx, surfaces...); err != nil {
		return errors.Join(err, p.stop(ctx))
	}
	if cfg.has(adminName) && cfg.Admin.GRPC != "" {
		lis, err := net.Listen("tcp", cfg.Admin.GRPC)
		if err != nil {
			return errors.Join(err, p.stop(ctx))
		}
		go func() {
			if err := p.graph.admin.ServeGRPC(lis); err != nil {
				p.failed <- fmt.Errorf("admin grpc: %w", err)
			}
		}()
	}
	p.tel.Logger().InfoContext(ctx, "serving", "services", cfg.Services)
	return errors.Join(p.wait(ctx), p.stop(ctx))
}

func (p *process) surfaces() ([]surface, error) {
	var out []surface
	add := func(name string, l Listener, h http.Handler) error {
		conf, err := l.tls()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		lis, err := net.Listen("tcp", l.Listen)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, surface{name: name, lis: lis, handler: h, tls: conf})
		return nil
	}
	if h := p.graph.router(); h != nil {
		if err := add("public", p.cfg.Public, p.standard("public", h, publicBody, true)); err != nil {
			return nil, err
		}
	}
	if p.graph.admin != nil {
		if err := add("admin", p.cfg.Admin.Listener, p.graph.admin.HTTP()); err != nil {
			return nil, err
		}
	}
	if p.cfg.Metrics != "" {
		if err := add("metrics", Listener{Listen: p.cfg.Metrics}, p.operations()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withDatabase runs fn on the database of a configuration file.
func withDatabase(file string, fn func(*db.DB) error) error {
	cfg, err := loadConfig(file)
	if err != nil {
		return err
	}
	if err := fromFile(&cfg.Database.DSN, cfg.Database.DSNFile, "database.dsn"); err != nil {
		return err
	}
	d, err := db.Open(db.Config{DSN: cfg.Database.DSN})
	if err != nil {
		return err
	}
	return errors.Join(fn(d), d.Close())
}

func migrateCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to this release",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(file, func(d *db.DB) error { return d.Migrate(cmd.Context()) })
		},
	}
	cmd.Flags().StringVar(&file, "config", "/etc/poppyfield/config.yaml", "configuration file")
	return cmd
}

func operatorKeyCommand() *cobra.Command {
	var file, name string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "operator-key",
		Short: "Make an operator's API key and print it, once",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(file, func(d *db.DB) error {
				var expires time.Time
				if life > 0 {
					expires = clock.System().Add(life)
				}
				key, err := admin.CreateOperatorKey(cmd.Context(), d, name, expires)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), key)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "config", "/etc/poppyfield/config.yaml", "configuration file")
	cmd.Flags().StringVar(&name, "name", "operator", "what the key is for")
	cmd.Flags().DurationVar(&life, "expires-in", 0, "lifetime of the key; 0 is without end")
	return cmd
}
