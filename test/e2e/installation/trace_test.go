package installation_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/otlp"
	"github.com/poppyfield/poppyfield/test/whole"
)

const stopTimeout = 20 * time.Second

func read(t *testing.T, r *http.Response) []byte {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return text
}

func TestTrace_OneFromTheAgentsPOSTToTheWebhook(t *testing.T) {
	for name, split := range map[string]bool{"one process": false, "six processes": true} {
		t.Run(name, func(t *testing.T) {
			collector := otlp.Start(t)
			o := whole.StartOutside(t, outside)
			i := whole.Serve(t, o, whole.InstallationOptions{Split: split, Collector: collector.URL})
			c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
			c.Backend.Answer(whole.Echo)
			a := whole.NewAgent(t, o, i.Client, find(t, i, c))
			require.NoError(t, a.StartSession(t.Context()))
			conversation, err := a.Open(t.Context(), fixture.RandomID(), "one")
			require.NoError(t, err)
			_, cursor, err := a.ReadUntil(t.Context(), conversation, "", whole.Idle)
			require.NoError(t, err)
			require.NoError(t, a.Send(t.Context(), conversation, fixture.RandomID(), "two"))
			_, _, err = a.ReadUntil(t.Context(), conversation, cursor, whole.Idle)
			require.NoError(t, err)

			// traceparent is 00-trace-span-flags.
			parent := strings.Split(c.Backend.Received()[1].Header.Get("Traceparent"), "-")
			require.Len(t, parent, 4)
			trace, webhook := parent[1], parent[2]
			wanted := map[string]func(otlp.Span) bool{
				"the agent's POST": func(s otlp.Span) bool {
					return s.Kind == tracepb.Span_SPAN_KIND_SERVER && s.Name == "POST /poppy/conversations/{id}/messages"
				},
				"a call that checks the proof":  serverSpan("poppyfield.sessions.v1.SessionsService/VerifyRequest"),
				"its client's side":             clientSpan("poppyfield.sessions.v1.SessionsService/VerifyRequest"),
				"a call that delivers":          serverSpan("poppyfield.relay.v1.DeliveryService/Deliver"),
				"a statement of SQL":            func(s otlp.Span) bool { return strings.HasPrefix(s.Name, "sql.") },
				"the delivery":                  func(s otlp.Span) bool { return s.Name == "conversations.deliver" },
				"the webhook, by its span's id": func(s otlp.Span) bool { return s.SpanID == webhook && s.Kind == tracepb.Span_SPAN_KIND_CLIENT },
			}
			ours := func(spans []otlp.Span) []otlp.Span {
				return slices.DeleteFunc(spans, func(s otlp.Span) bool { return s.TraceID != trace })
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(otlp.Print(ours(collector.Spans())))
				}
			})
			for what, is := range wanted {
				collector.Await(t, what, func(all []otlp.Span) bool {
					return slices.ContainsFunc(ours(all), is)
				})
			}
			byID := map[string]otlp.Span{}
			for _, s := range ours(collector.Spans()) {
				byID[s.SpanID] = s
			}
			roots := 0
			for _, s := range byID {
				if _, known := byID[s.ParentID]; !known {
					require.Empty(t, s.ParentID, "%s hangs in the air", s.Name)
					roots++
				}
			}
			require.Equal(t, 1, roots)
		})
	}
}

func serverSpan(method string) func(otlp.Span) bool {
	return func(s otlp.Span) bool { return s.Kind == tracepb.Span_SPAN_KIND_SERVER && s.Name == method }
}

func clientSpan(method string) func(otlp.Span) bool {
	return func(s otlp.Span) bool { return s.Kind == tracepb.Span_SPAN_KIND_CLIENT && s.Name == method }
}
