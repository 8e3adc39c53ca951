package webhook_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

var eventTime = time.Date(2026, 12, 1, 9, 30, 0, 123456000, time.UTC)

func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	raw, err := webhook.EventSchema(name)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("https://poppyfield.example/"+name, doc))
	s, err := c.Compile("https://poppyfield.example/" + name)
	require.NoError(t, err)
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, body []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	return s.Validate(doc)
}

func TestEventSchema_ExampleOfEveryTypeFits(t *testing.T) {
	for _, name := range webhook.EventTypes() {
		t.Run(name, func(t *testing.T) {
			require.NotEmpty(t, webhook.DescribeEvent(name))
			s := compileSchema(t, name)
			body, err := webhook.ExampleEvent(name, eventTime)
			require.NoError(t, err)
			require.NoError(t, validate(t, s, body))
			require.True(t, strings.HasPrefix(string(body), `{"type":"`+name+`","timestamp":"2026-12-01T09:30:00.123Z","data":{"company":"companies/cmp_`), string(body))
		})
	}
}

// Every member is always there: taking any one away, at any depth, breaks the schema.
func TestEventSchema_EveryMemberIsRequired(t *testing.T) {
	for _, name := range webhook.EventTypes() {
		s := compileSchema(t, name)
		body, err := webhook.ExampleEvent(name, eventTime)
		require.NoError(t, err)
		var whole map[string]any
		require.NoError(t, json.Unmarshal(body, &whole))
		for _, path := range memberPaths(whole, nil) {
			if len(path) > 3 && path[len(path)-2] == "data" { // the content of a message's data is the sender's
				continue
			}
			var doc map[string]any
			require.NoError(t, json.Unmarshal(body, &doc))
			at := doc
			for _, p := range path[:len(path)-1] {
				at, _ = at[p].(map[string]any)
			}
			delete(at, path[len(path)-1])
			require.Error(t, s.Validate(doc), "%s without %s", name, strings.Join(path, "."))
		}
	}
}

func memberPaths(v map[string]any, above []string) [][]string {
	var out [][]string
	for k, below := range v {
		path := append(append([]string{}, above...), k)
		out = append(out, path)
		if m, ok := below.(map[string]any); ok {
			out = append(out, memberPaths(m, path)...)
		}
	}
	return out
}

func TestEventSchema_RefusesWrongValues(t *testing.T) {
	for name, change := range map[string][2]string{
		"another type":     {`"type":"conversation.closed"`, `"type":"conversation.started"`},
		"no time":          {`"timestamp":"2026-12-01T09:30:00.123Z"`, `"timestamp":"yesterday"`},
		"unknown status":   {`"status":"closed"`, `"status":"open"`},
		"text for number":  {`"sequence":10`, `"sequence":"10"`},
		"unknown closer":   {`"closed_by":"agent"`, `"closed_by":"nobody"`},
		"null for a list":  {`"scopes":[]`, `"scopes":null`},
		"null for a text":  {`"company":"companies/cmp_01hxk5c4d3q2w1e0r9t8y7z6m5"`, `"company":null`},
		"object for a yes": {`"direct":false`, `"direct":{}`},
	} {
		body, err := webhook.ExampleEvent(webhook.EventClosed, eventTime)
		require.NoError(t, err)
		require.Contains(t, string(body), change[0], name)
		require.Error(t, validate(t, compileSchema(t, webhook.EventClosed), []byte(strings.Replace(string(body), change[0], change[1], 1))), name)
	}
}

func TestMatchesEvent_PatternsWithStars(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, webhook.EventClosed, true},
		{[]string{"*"}, webhook.EventSessionEnded, true},
		{[]string{"session.*"}, webhook.EventSessionEnded, true},
		{[]string{"session.*"}, webhook.EventClosed, false},
		{[]string{"session.signed_*"}, webhook.EventSessionSignedOut, true},
		{[]string{"session.signed_*"}, webhook.EventSessionEnded, false},
		{[]string{"conversation.direct_opened"}, webhook.EventDirectOpened, true},
		{[]string{"conversation.direct"}, webhook.EventDirectOpened, false},
		{[]string{"session.started", "conversation.closed"}, webhook.EventClosed, true},
		{[]string{""}, webhook.EventClosed, false},
		{nil, webhook.EventPing, false},
		{[]string{"*"}, webhook.EventPing, false},
		{[]string{"*.closed"}, webhook.EventClosed, false},
	} {
		require.Equal(t, c.want, webhook.MatchesEvent(c.patterns, c.name), "%q of %q", c.name, c.patterns)
	}
}

func TestCheckEventPattern_RefusesWhatNeverComes(t *testing.T) {
	for _, ok := range []string{"*", "session.*", "conversation.closed", "conversation.direct_*"} {
		require.NoError(t, webhook.CheckEventPattern("event_types", ok), ok)
	}
	for _, bad := range []string{"", "sessions.*", "conversation.close", "*.closed", "session.**", "test.ping", strings.Repeat("x", 101) + "*"} {
		err := webhook.CheckEventPattern("event_types", bad)
		require.True(t, problem.Is(err, problem.InvalidRequest), "%q: %v", bad, err)
	}
}

func TestBuildEvent_RefusesWhatIsNotInTheCatalogue(t *testing.T) {
	_, err := webhook.BuildEvent("conversation.unknown", "companies/x", eventTime, webhook.StartedData{})
	require.Error(t, err)
	_, err = webhook.BuildEvent(webhook.EventClosed, "companies/x", eventTime, webhook.StartedData{})
	require.Error(t, err, "data of another type")
	_, err = webhook.ExampleEvent("conversation.unknown", eventTime)
	require.Error(t, err)
	_, err = webhook.EventSchema("conversation.unknown")
	require.Error(t, err)
	require.Empty(t, webhook.DescribeEvent("conversation.unknown"))
}
