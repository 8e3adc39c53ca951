package pgtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
)

// A Migrate brings the empty database at a URL to the present schema. It connects as
// Role and leaves no connection open.
type Migrate func(ctx context.Context, url string) error

// New makes a database for one test and returns its URL. The database is a copy of a
// template that migrate was run on once in this test binary, and goes with the test.
// Templates are told apart by the code of migrate: pass a function of its own, not a
// closure that is made anew with other values.
func New(t testing.TB, migrate Migrate) string {
	t.Helper()
	name, err := shared.clone(t.Context(), migrate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.server.dropDatabase(context.Background(), name); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return shared.server.url(Role, name)
}

// shared is the test binary's server. It has no end of its own: the watchdog of
// package child ends it with the binary.
var shared cluster

type cluster struct {
	mu        sync.Mutex
	server    *Server
	failed    error
	templates map[uintptr]string
	count     int
}

func (c *cluster) clone(ctx context.Context, migrate Migrate) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return "", c.failed
	}
	if c.server == nil {
		if c.server, c.failed = Open(Options{}); c.failed != nil {
			return "", c.failed
		}
		c.templates = map[uintptr]string{}
	}
	key := reflect.ValueOf(migrate).Pointer()
	template, ok := c.templates[key]
	if !ok {
		template = "template_" + strconv.Itoa(len(c.templates))
		if err := c.migrated(ctx, template, migrate); err != nil {
			return "", err
		}
		c.templates[key] = template
	}
	c.count++
	name := "test_" + strconv.Itoa(c.count)
	return name, c.server.createDatabase(ctx, name, template)
}

func (c *cluster) migrated(ctx context.Context, template string, migrate Migrate) error {
	if err := c.server.createDatabase(ctx, template, ""); err != nil {
		return err
	}
	if err := migrate(ctx, c.server.url(Role, template)); err != nil {
		return errors.Join(fmt.Errorf("migrating the template: %w", err), c.server.dropDatabase(ctx, template))
	}
	return nil
}
