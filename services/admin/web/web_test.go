package web

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

func table(t testing.TB) *method.Table {
	t.Helper()
	names := make([]protoreflect.FullName, 0, len(registrations))
	for name := range registrations {
		names = append(names, name)
	}
	names = append(names, method.Package+".BackendStreamService") // REST has no part of it
	got, err := method.Load(names...)
	require.NoError(t, err)
	return got
}

// stuck is a connection whose peer takes nothing.
type stuck struct {
	header   http.Header
	deadline time.Time
	tries    int
}

func (s *stuck) Header() http.Header                { return s.header }
func (s *stuck) WriteHeader(int)                    {}
func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *stuck) Write([]byte) (int, error) {
	s.tries++
	if s.deadline.IsZero() {
		panic("a write without a deadline would block for ever")
	}
	return 0, os.ErrDeadlineExceeded
}

func TestStream_ClientThatTakesNothingIsCut(t *testing.T) {
	conn := &stuck{header: http.Header{}}
	s := &stream{
		out: newEvents(conn), reader: &reader{all: true}, sent: map[string]string{}, now: func() time.Time { return time.Unix(1, 0) },
		log: slog.New(slog.DiscardHandler), connected: func() bool { return true }, allowed: func(context.Context) (bool, error) { return true, nil },
	}
	s.run(t.Context(), asking{all: true}, time.Hour, nil, nil)
	require.Equal(t, 1, conn.tries)
	require.True(t, conn.deadline.IsZero(), "the deadline is taken back")
}

func FuzzCheckBody(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"a.example"}`, `{"domans":1}`, `{"apis":[{"type":"mcp"}],"extensions":{"x":{"version":1}}}`, `{"message":{"text":"x","data":{"a":[1,null]}}}`,
		`{"a":`, `[]`, `null`, ``, `{"request_id":"x","overlap":"5s"}`, `{"domain":"a","domain":"b"}`, `{"create_time":"2026"}`, "\xff", strings.Repeat(`{"a":`, 80),
	} {
		f.Add([]byte(seed))
	}
	tab := table(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, m := range tab.Methods() {
			if m.Stream {
				continue // no request by REST comes to it
			}
			err := checkBody(m, "application/json", body)
			if m.HTTP.Body == "" {
				require.Error(t, err)
				continue
			}
			if err == nil {
				require.NoError(t, protojson.Unmarshal(body, bodyMessage(m)))
				continue
			}
			p := problem.As(err)
			require.NotEqual(t, problem.Internal, p.Kind)
			require.NotContains(t, p.Detail, "proto:")
		}
	})
}

func FuzzCheckQuery(f *testing.F) {
	for _, seed := range []string{"", "page_size=1", "page_size=x", "page_size=1&page_size=2", "update_mask=a,b", "%zz", "a;b", "pageSize=1&page_size=2", "name=x", "filter=%00"} {
		f.Add(seed)
	}
	tab := table(f)
	f.Fuzz(func(t *testing.T, raw string) {
		for _, m := range tab.Methods() {
			if m.Stream {
				continue
			}
			query, err := checkQuery(m, raw)
			if err != nil {
				require.Equal(t, problem.InvalidRequest, problem.As(err).Reason)
				continue
			}
			for name, values := range query {
				require.NotNil(t, m.Desc.Input().Fields().ByName(protoreflect.Name(name)))
				require.NotEmpty(t, values)
			}
		}
	})
}

func FuzzParseWatch(f *testing.F) {
	f.Add("topics=conversations", "")
	f.Add("topics=conversation:cnv_1,conversations", "1767225600000000")
	f.Add("topics=conversation:%2A&watch_token=5", "x")
	f.Add("%zz", "-1")
	f.Fuzz(func(t *testing.T, query, lastEventID string) {
		a, err := parseWatch(query, lastEventID)
		if err != nil {
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		require.True(t, a.all || len(a.ids) > 0)
		require.GreaterOrEqual(t, a.since, int64(0))
	})
}
