package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/whole"
)

const question = "Where is my order?"

// command runs the binary and returns its exit code and what it printed.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := devserver.FindBinary()
	require.NoError(t, err)
	return execute(t, exec.CommandContext(t.Context(), binary, args...))
}

func execute(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended, "%s", &errs)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func operator(t *testing.T, s *devserver.Server) whole.API {
	t.Helper()
	return whole.API{Origin: s.APIOrigin, Key: s.OperatorAPIKey, Client: s.Client(t)}
}

// state is what the agent kept of its only conversation, below its directory.
func state(t *testing.T, dir string) (conversation, token string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "agent", "users", "*", "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var kept struct {
		Session      struct{ Token string }
		Conversation struct{ ID string }
	}
	require.NoError(t, json.Unmarshal(text, &kept))
	return kept.Conversation.ID, kept.Session.Token
}

// texts are the messages of a conversation, as the Company reads them.
func texts(t *testing.T, api whole.API, company, conversation string) []string {
	t.Helper()
	var page struct {
		Events []struct {
			Type    string
			Message struct{ Role, Text string }
		}
	}
	require.NoError(t, api.Call(t.Context(), http.MethodGet, company+"/conversations/"+conversation+"/events?page_size=200", nil, &page))
	var out []string
	for _, e := range page.Events {
		if e.Type == "message" {
			out = append(out, e.Message.Role+": "+e.Message.Text)
		}
	}
	return out
}

func TestDev_PrintedExampleWorksAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: dir})
	printed, err := os.ReadFile(s.LogFile)
	require.NoError(t, err)
	for _, said := range []string{"https://" + s.DemoDomain + "/", s.DemoIssuer, s.CAFile, filepath.Join(dir, "ready.json"), s.APIOrigin + "/v1/openapi.yaml"} {
		require.Contains(t, string(printed), said)
	}
	require.NotContains(t, string(printed), s.OperatorAPIKey)
	example := regexp.MustCompile(`(?m)^ +(\S+ agent talk .*)$`).FindSubmatch(printed)
	require.NotNil(t, example, "%s", printed)

	code, out, errs := execute(t, exec.CommandContext(t.Context(), "sh", "-c", string(example[1])))
	require.Zero(t, code, errs)
	answer := regexp.MustCompile(`Noodle Bar \(agent\): (To look up your orders .*)\n`).FindStringSubmatch(out)
	require.NotNil(t, answer, out)
	first, _ := state(t, dir)

	code, out, errs = execute(t, exec.CommandContext(t.Context(), "sh", "-c", string(example[1])))
	require.Zero(t, code, errs)
	require.Contains(t, out, answer[1])
	require.Contains(t, out, "Send a message in the conversation")
	second, _ := state(t, dir)
	require.Equal(t, first, second)
	require.Equal(t,
		[]string{"user: " + question, "company: " + answer[1], "user: " + question, "company: " + answer[1]},
		texts(t, operator(t, s), s.DemoCompany, first))

	code, out, errs = command(t, "agent", "discover", "--dev", dir, s.DemoDomain)
	require.Zero(t, code, errs)
	require.GreaterOrEqual(t, strings.Count(out, "\nok "), 15, out)
	require.Contains(t, out, "poppy_domains lists organization.domain")
	require.Contains(t, out, "passed every check")
}

func TestAgent_JSONShowsExchangesWithoutSecrets(t *testing.T) {
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: dir})
	code, out, errs := command(t, "agent", "talk", "--json", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
	steps := strings.Split(strings.TrimSpace(out), "\n")
	for _, step := range steps {
		require.True(t, json.Valid([]byte(step)), step)
	}
	require.Greater(t, len(steps), 15)
	require.Contains(t, out, "client_assertion=")
	require.Contains(t, out, question)
	_, token := state(t, dir)
	require.NotEmpty(t, token)
	require.NotContains(t, out+errs, token)
	require.NotRegexp(t, `eyJ[\w-]{8,}\.eyJ`, out+errs, "a JWT in clear")

	code, out, errs = command(t, "agent", "talk", "--json", "--show-secrets", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
	require.Contains(t, out, token, "what was looked for is what is sent")
}

func TestDev_RestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: dir})
	code, _, errs := command(t, "agent", "talk", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
	before := s.Ready
	conversation, token := state(t, dir)

	s.Stop(t)
	s.Restart(t)
	require.Equal(t, before, s.Ready)

	code, out, errs := command(t, "agent", "talk", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
	require.Contains(t, out, "Use the Session Token at hand")
	require.Contains(t, out, "To look up your orders ")
	again, same := state(t, dir)
	require.Equal(t, conversation, again)
	require.Equal(t, token, same)
	require.Len(t, texts(t, operator(t, s), s.DemoCompany, conversation), 4)
	var me struct{ Company string }
	own := operator(t, s)
	own.Key = before.DemoCompanyAPIKey
	require.NoError(t, own.Call(t.Context(), http.MethodGet, "me", nil, &me))
	require.Equal(t, s.DemoCompany, me.Company)
}

func TestDev_DataDirectoryKeepsItsPort(t *testing.T) {
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: dir})
	code, _, errs := command(t, "dev", "--data-dir", dir, "--listen", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "this data directory serves "+strings.Replace(s.APIOrigin, "https://localhost", "127.0.0.1", 1))
	code, _, errs = command(t, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "address already in use")
	require.FileExists(t, filepath.Join(dir, "ready.json"), "of the one that goes on")
	code, _, errs = command(t, "agent", "talk", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
}

func TestCommand_MistakesAreNamedAndEndWith2(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for said, args := range map[string][]string{
		"unknown flag: --bogus":                {"dev", "--bogus"},
		`unknown command "extra"`:              {"dev", "extra"},
		`unknown command "nosuch"`:             {"nosuch"},
		`unknown command "bogus"`:              {"agent", "bogus"},
		"dev serves loopback addresses only":   {"dev", "--data-dir", dir, "--listen", "8.8.8.8:8443"},
		"missing port in address":              {"dev", "--data-dir", dir, "--listen", "nonsense"},
		"want NAME=IP[:PORT]":                  {"dev", "--data-dir", dir, "--dev-host", "a.test"},
		"8.8.8.8 is not a loopback address":    {"dev", "--data-dir", dir, "--dev-host", "a.test=8.8.8.8"},
		`level string "loud"`:                  {"dev", "--data-dir", dir, "--log-level", "loud"},
		"accepts 2 arg(s), received 0":         {"agent", "talk"},
		"no running `poppyfield dev` found in": {"agent", "talk", "--dev", dir, "a.test", "hello"},
	} {
		code, out, errs := command(t, args...)
		require.Equal(t, 2, code, "%s: %s", args, errs)
		require.Empty(t, out)
		require.Contains(t, errs, said)
		require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %s", errs)
	}
	require.NoDirExists(t, dir, "nothing is written for a command that can't work")

	code, _, errs := command(t, "serve", "--config", filepath.Join(dir, "none.yaml"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no such file")
}

func read(t *testing.T, r *http.Response) []byte {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return text
}
