package e2e_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/otlp"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestLG01_PS03_SecretsAreNowhere(t *testing.T) {
	collector := otlp.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	o := whole.StartOutside(t, "")
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{
		DataDir: dir, DevHosts: o.DevHosts(), TrustCA: []string{o.CAFile}, Flags: []string{"--demo=false", "--log-level", "debug"},
	})
	client := s.Client(t)
	recorder := whole.Record(client)
	api := whole.API{Origin: s.APIOrigin, Key: s.OperatorAPIKey, Client: client}
	c := whole.Onboard(t, api, o, whole.Spec{Slug: "secrets", Domain: "noodles.outside.test"})
	agent := whole.NewAgent(t, o, client, whole.Endpoints{
		Issuer: c.Issuer, Token: c.Issuer + "/oauth/token", Revocation: c.Issuer + "/oauth/revoke", Conversations: c.Issuer + "/poppy/conversations",
	})
	everybody := whole.Everybody{API: api, Company: c, Agent: agent, Outside: o, Recorder: recorder, Client: client}
	everybody.Exercise(t)
	response, err := http.Get(s.MetricsOrigin + "/metrics")
	require.NoError(t, err)
	recorder.Hides(t, "/metrics", read(t, response))
	s.Stop(t) // writes out everything

	log, err := os.ReadFile(s.LogFile)
	require.NoError(t, err)
	recorder.Hides(t, "the log", log)
	require.Contains(t, string(log), "level=DEBUG")
	require.NotContains(t, string(log), "panic")
	recorder.Hides(t, "the traces", collector.Raw())
	require.Greater(t, len(collector.Spans()), 100)
	for _, failure := range recorder.Failures() {
		recorder.HidesCredentialsBut(t, "an error answer", []byte(failure), whole.OfPages()...)
		require.NotContains(t, failure, "goroutine ")
		require.NotContains(t, failure, ".go:")
	}
	require.Greater(t, len(recorder.Failures()), 30)
	everybody.CheckForwarded(t)

	looked := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "operator-key" || entry.Name() == "ready.json" { // what they are for
			return err
		}
		text, err := os.ReadFile(path)
		if len(text) > 0 {
			recorder.HidesCredentials(t, strings.TrimPrefix(path, dir), text)
			looked++
		}
		return err
	}))
	require.FileExists(t, filepath.Join(dir, "poppyfield.db"))
	require.Greater(t, looked, 5)
}
