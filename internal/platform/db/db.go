package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/XSAM/otelsql"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Config says which database to open.
type Config struct {
	// DSN is a postgres:// URL, or sqlite:PATH for the embedded database.
	DSN string
	// MaxConns bounds the PostgreSQL pool; 0 means 16.
	MaxConns int
	// TracerProvider gets a span for each statement, without its arguments; nil for none.
	TracerProvider trace.TracerProvider
}

// DB is an open database.
type DB struct {
	dialect string
	writer  *sql.DB
	reader  *sql.DB // the same as writer on PostgreSQL
	wclient *ent.Client
	rclient *ent.Client
}

// Open opens the database; it doesn't migrate.
func Open(cfg Config) (*DB, error) {
	if path, ok := strings.CutPrefix(cfg.DSN, "sqlite:"); ok {
		return openSQLite(cfg, path)
	}
	if strings.HasPrefix(cfg.DSN, "postgres://") || strings.HasPrefix(cfg.DSN, "postgresql://") {
		return openPostgres(cfg)
	}
	return nil, errors.New("database DSN is neither a postgres:// URL nor sqlite:PATH")
}

func openPostgres(cfg Config) (*DB, error) {
	c, err := newConnector(cfg.DSN)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(c)
	if cfg.TracerProvider != nil {
		pool = otelsql.OpenDB(c, traced(cfg, "postgresql")...)
	}
	n := cfg.MaxConns
	if n <= 0 {
		n = 16
	}
	// Idle connections are kept: reconnecting costs more than a query.
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	d := &DB{dialect: dialect.Postgres, writer: pool, reader: pool}
	d.wclient = guarded(entsql.OpenDB(dialect.Postgres, pool))
	d.rclient = d.wclient
	return d, nil
}

// SQLite has one writer and several readers: a second writer would only wait for
// the lock, and a reader that upgrades to a writer fails at once (SQLITE_BUSY).
func openSQLite(cfg Config, path string) (*DB, error) {
	const common = "?_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_time_format=sqlite&_timezone=UTC"
	w, err := openSQLiteFile(cfg, "file:"+path+common+"&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	w.SetMaxOpenConns(1)
	r, err := openSQLiteFile(cfg, "file:"+path+common+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	r.SetMaxOpenConns(8)
	r.SetMaxIdleConns(8)
	d := &DB{dialect: dialect.SQLite, writer: w, reader: r}
	d.wclient = guarded(entsql.OpenDB(dialect.SQLite, w))
	d.rclient = guarded(entsql.OpenDB(dialect.SQLite, r))
	return d, nil
}

func openSQLiteFile(cfg Config, dsn string) (*sql.DB, error) {
	if cfg.TracerProvider == nil {
		return sql.Open("sqlite", dsn)
	}
	return otelsql.Open("sqlite", dsn, traced(cfg, "sqlite")...)
}

func traced(cfg Config, system string) []otelsql.Option {
	return []otelsql.Option{
		otelsql.WithTracerProvider(cfg.TracerProvider),
		otelsql.WithAttributes(attribute.String("db.system.name", system)),
		otelsql.WithSpanOptions(otelsql.SpanOptions{
			OmitConnResetSession: true, OmitConnectorConnect: true, OmitRows: true, OmitConnPrepare: true,
			DisableErrSkip: true,
			// A span only where a request is being traced, never for idle background work.
			SpanFilter: func(ctx context.Context, _ otelsql.Method, _ string, _ []driverValue) bool {
				return trace.SpanContextFromContext(ctx).IsSampled()
			},
		}),
	}
}

// Close closes the pools.
func (d *DB) Close() error {
	if d.reader != d.writer {
		return errors.Join(d.reader.Close(), d.writer.Close())
	}
	return d.writer.Close()
}

// Postgres reports whether the database is PostgreSQL; only it has row locks.
func (d *DB) Postgres() bool { return d.dialect == dialect.Postgres }

// Ping checks that the database takes writes: it opens and rolls back a write transaction.
func (d *DB) Ping(ctx context.Context) error {
	tx, err := d.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return tx.Rollback()
}

// Write runs fn in a transaction that may change rows of scope's Company and commits
// when fn returns nil. fn may run again after a deadlock or serialisation failure, so
// it must have no effect outside the transaction. The ctx it gets is bound to the
// unit: starting another unit with it fails.
func (d *DB) Write(ctx context.Context, scope tenancy.Scope, fn func(context.Context, *ent.Tx) error) error {
	if scope.IsZero() {
		return errNoScope
	}
	return d.unit(ctx, d.wclient, unit{scope: scope}, false, fn)
}

// Read runs fn in a read-only transaction on rows of scope's Company.
func (d *DB) Read(ctx context.Context, scope tenancy.Scope, fn func(context.Context, *ent.Tx) error) error {
	if scope.IsZero() {
		return errNoScope
	}
	return d.unit(ctx, d.rclient, unit{scope: scope}, true, fn)
}

// Reason is why a unit of work may cross Companies. The list is closed.
type Reason string

// The reasons.
const (
	ResolveHost    Reason = "find the Company of a public host"
	ManageTenants  Reason = "operator manages Companies"
	Authenticate   Reason = "find the API key of a caller"
	AnswerRepeats  Reason = "recognise a repeated admin request"
	ClaimDeadlines Reason = "find Companies with due work"
	TakeDomain     Reason = "find the Company that has a domain"
	Prune          Reason = "drop expired rows"
	CountUsage     Reason = "count what Companies use"
	LogAttempts    Reason = "log attempts at several Companies' endpoints"
	WatchSessions  Reason = "find changes of Sessions that are watched"
	FirstStart     Reason = "see whether anything was ever accepted"
)

// SystemWrite is Write across all Companies.
func (d *DB) SystemWrite(ctx context.Context, why Reason, fn func(context.Context, *ent.Tx) error) error {
	return d.unit(ctx, d.wclient, unit{system: why}, false, fn)
}

// SystemRead is Read across all Companies.
func (d *DB) SystemRead(ctx context.Context, why Reason, fn func(context.Context, *ent.Tx) error) error {
	return d.unit(ctx, d.rclient, unit{system: why}, true, fn)
}

var (
	errNoScope = errors.New("unit of work without a company")
	errNested  = errors.New("unit of work inside another")
)

const (
	maxTries = 4
	// maxLost is how many dead connections a unit gets out of the pool's way: when the
	// server comes back, all of them are.
	maxLost = 64
)

func (d *DB) unit(ctx context.Context, client *ent.Client, u unit, readOnly bool, fn func(context.Context, *ent.Tx) error) error {
	if _, ok := unitFrom(ctx); ok {
		return errNested
	}
	for try, lost := 1, 0; ; try++ {
		err := d.once(ctx, client, u, readOnly, fn)
		if errors.As(err, new(lostError)) && lost < maxLost {
			lost++
			try--
			continue
		}
		if err == nil || try == maxTries || !retryable(err) {
			return translate(err)
		}
	}
}

func (d *DB) once(ctx context.Context, client *ent.Client, u unit, readOnly bool, fn func(context.Context, *ent.Tx) error) (err error) {
	var opts *sql.TxOptions
	if readOnly && d.Postgres() {
		opts = &sql.TxOptions{ReadOnly: true}
	}
	uctx := into(ctx, u)
	tx, err := client.BeginTx(uctx, opts)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // fn failed or panicked
			_ = tx.Rollback()
		}
	}()
	if err := fn(uctx, tx); err != nil {
		return err
	}
	done = true
	return tx.Commit()
}

// retryable reports whether the transaction may succeed when run again: it lost against another one (PostgreSQL's
// serialization_failure, deadlock_detected), or the pool gave it a connection that had died before and took nothing.
func retryable(err error) bool {
	var pg *pgconn.PgError
	return pgconn.SafeToRetry(err) || errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// translate keeps problems and ent's own errors as they are, and turns a database that can't be reached into Unavailable.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var p *problem.Error
	if errors.As(err, &p) || ent.IsNotFound(err) || ent.IsConstraintError(err) || errors.Is(err, context.Canceled) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57P") && !strings.HasPrefix(pg.Code, "53") && !strings.HasPrefix(pg.Code, "08") {
		return err
	}
	if errors.As(err, &pg) || isConnect(err) || errors.Is(err, context.DeadlineExceeded) {
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the service is briefly unavailable").WithRetryAfter(time.Second).WithCause(err)
	}
	return err
}
