package installation_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/otlp"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestLG01_PS03_SecretsAreNowhere(t *testing.T) {
	collector := otlp.Start(t)
	o := whole.StartOutside(t, outside)
	i := whole.Serve(t, o, whole.InstallationOptions{Split: true, Collector: collector.URL, LogLevel: "debug"})
	recorder := whole.Record(i.Client)
	c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
	agent := whole.NewAgent(t, o, i.Client, find(t, i, c))
	everybody := whole.Everybody{API: i.API, Company: c, Agent: agent, Outside: o, Recorder: recorder, Client: i.Client}
	everybody.Exercise(t)
	for name, p := range i.Processes {
		response, err := http.Get(p.Metrics + "/metrics")
		require.NoError(t, err)
		text := read(t, response)
		recorder.Hides(t, "/metrics of "+name, text)
	}
	for name, p := range i.Processes {
		require.NoError(t, p.Stop(stopTimeout)) // writes out everything
		log, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		recorder.Hides(t, "the log of "+name, log)
		require.Contains(t, string(log), `"level":"DEBUG"`)
		require.NotContains(t, string(log), "panic")
	}
	recorder.Hides(t, "the traces", collector.Raw())
	for _, failure := range recorder.Failures() {
		recorder.HidesCredentialsBut(t, "an error answer", []byte(failure), whole.OfPages()...)
	}
	everybody.CheckForwarded(t)

	recorder.HidesCredentials(t, "the database", rows(t, i.DSN, ""))
	recorder.Hides(t, "the delivery log", rows(t, i.DSN, `SELECT concat_ws(' ', last_status, last_reason, agent_outcome, traceparent, lease_owner) FROM deliveries`))
}

// rows returns the answer of a query as text, or every row of every table when it is
// empty. Bytes are hexadecimal, and once more as they are.
func rows(t *testing.T, dsn, query string) []byte {
	t.Helper()
	ctx := t.Context()
	db, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close(ctx)) }()
	_, err = db.Exec(ctx, `SET app.system = 'on'`) // row-level security
	require.NoError(t, err)
	queries := []string{query}
	if query == "" {
		queries = nil
		for _, table := range texts(t, db, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'`) {
			queries = append(queries, fmt.Sprintf(`SELECT t::text FROM %s t`, pgx.Identifier{table}.Sanitize()))
		}
		queries = append(queries, texts(t, db,
			`SELECT format('SELECT encode(%I, ''escape'') FROM %I WHERE %1$I IS NOT NULL', column_name, table_name)
			 FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'bytea'`)...)
	}
	var out []string
	for _, q := range queries {
		out = append(out, texts(t, db, q)...)
	}
	require.NotEmpty(t, out)
	return []byte(strings.Join(out, "\n"))
}

func texts(t *testing.T, db *pgx.Conn, query string) []string {
	t.Helper()
	found, err := db.Query(t.Context(), query)
	require.NoError(t, err)
	out, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err, query)
	return out
}
