package admin_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

type connection = grpc.BidiStreamingClient[adminv1.ConnectRequest, adminv1.ConnectResponse]

func (a *api) connect(ctx context.Context, t *testing.T, first *adminv1.ConnectRequest) connection {
	t.Helper()
	stream, err := adminv1.NewBackendStreamServiceClient(a.conn).Connect(ctx)
	require.NoError(t, err)
	if first != nil {
		_ = stream.Send(first) // what came of it is in the answer
	}
	return stream
}

func hello(scope tenancy.Scope) *adminv1.ConnectRequest {
	return &adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: &adminv1.BackendHello{Company: scope.Name()}}}
}

func delta(text string) *adminv1.ConnectRequest {
	return &adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Delta{Delta: &adminv1.BackendDelta{Delivery: "dlv_1", Text: text}}}
}

// echoes sends back what each message says, until the caller says no more.
func echoes(m *method.Method, stream grpc.ServerStream) error {
	for {
		in := m.NewInput()
		if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		said, ok := in.(*adminv1.ConnectRequest)
		if !ok {
			return errors.New("another message")
		}
		if said.GetDelta().GetText() == "fail" {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the owner says no")
		}
		out := &adminv1.ConnectResponse{Frame: &adminv1.ConnectResponse_Event{Event: &adminv1.BackendEvent{Delivery: said.GetDelta().GetText()}}}
		if err := stream.SendMsg(out); err != nil {
			return err
		}
	}
}

func ended(t *testing.T, stream connection) *status.Status {
	t.Helper()
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return status.New(codes.OK, "")
		} else if err != nil {
			return withoutID(t, err)
		}
	}
}

func TestStream_BothDirectionsFlow(t *testing.T) {
	a, scope, key := rig(t)
	a.owner.talks(echoes)
	stream := a.connect(as(t, key), t, hello(scope))
	_, err := stream.Recv()
	require.NoError(t, err)
	for _, text := range []string{"one", "two", "three"} {
		require.NoError(t, stream.Send(delta(text)))
		got, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, text, got.GetEvent().GetDelivery())
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	got := a.owner.got()
	require.Len(t, got, 1)
	require.Equal(t, scope.CompanyID(), got[0].company)
	require.Regexp(t, `^companies/cmp_[^/]+/apiKeys/key_`, got[0].actor)
	header, err := stream.Header()
	require.NoError(t, err)
	require.Len(t, header.Get("x-request-id"), 1)
}

func TestStream_WithoutASoundKeyNothingReachesTheOwner(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		mine, theirs := dbtest.Company(t, d), dbtest.Company(t, d)
		for name, c := range map[string]struct {
			ctx   context.Context
			first *adminv1.ConnectRequest
			want  codes.Code
		}{
			"no key":              {t.Context(), hello(mine), codes.Unauthenticated},
			"no such key":         {as(t, admin.NewKey()), hello(mine), codes.Unauthenticated},
			"garbled key":         {metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic x"), hello(mine), codes.Unauthenticated},
			"without permission":  {as(t, a.key(t, mine, "backend.read", "conversations.*")), hello(mine), codes.PermissionDenied},
			"another company":     {as(t, a.key(t, mine, "*")), hello(theirs), codes.NotFound},
			"another's, operator": {as(t, a.operator), &adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: &adminv1.BackendHello{Company: "companies/cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz"}}}, codes.NotFound},
			"no company":          {as(t, a.key(t, mine, "*")), &adminv1.ConnectRequest{}, codes.NotFound},
			"another frame first": {as(t, a.key(t, mine, "*")), delta("x"), codes.NotFound},
		} {
			t.Run(name, func(t *testing.T) {
				require.Equal(t, c.want, ended(t, a.connect(c.ctx, t, c.first)).Code())
				require.Empty(t, a.owner.got())
			})
		}
		require.Equal(t, codes.OK, ended(t, a.connect(as(t, a.key(t, mine, "backend.connect")), t, hello(mine))).Code())
		require.Len(t, a.owner.got(), 1)
	})
}

func TestStream_FirstMessageHasToComeInTime(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{FirstMessage: 50 * time.Millisecond})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "*")
	require.Equal(t, codes.InvalidArgument, ended(t, a.connect(as(t, key), t, nil)).Code())
	closed := a.connect(as(t, key), t, nil)
	require.NoError(t, closed.CloseSend())
	require.Equal(t, codes.InvalidArgument, ended(t, closed).Code(), "ends without a message")
	require.Empty(t, a.owner.got())
}

// Rules of the API hold for the first message as for every later one.
func TestGW01_UnknownFieldsAndNULInAStream(t *testing.T) {
	a, scope, key := rig(t)
	a.owner.talks(echoes)
	unknown := func(m *adminv1.ConnectRequest, in proto.Message) *adminv1.ConnectRequest {
		in.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 777, protowire.VarintType), 1))
		return m
	}
	strange := hello(scope)
	bad := ended(t, a.connect(as(t, key), t, unknown(strange, strange.GetHello())))
	require.Equal(t, codes.InvalidArgument, bad.Code())
	require.Equal(t, "hello.#777", violationOf(t, bad.Err()))
	require.Empty(t, a.owner.got())
	late := delta("x")
	for field, m := range map[string]*adminv1.ConnectRequest{
		"delta.#777": unknown(late, late.GetDelta()),
		"delta.text": delta("a\x00b"),
	} {
		stream := a.connect(as(t, key), t, hello(scope))
		require.NoError(t, stream.Send(m))
		bad := ended(t, stream)
		require.Equal(t, codes.InvalidArgument, bad.Code(), field)
		require.Equal(t, field, violationOf(t, bad.Err()))
	}
	huge := a.connect(as(t, key), t, hello(scope))
	require.NoError(t, huge.Send(delta(strings.Repeat("x", 2<<20))))
	require.Equal(t, codes.ResourceExhausted, ended(t, huge).Code())
}

func TestStream_RevokedKeyEndsIt(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{Recheck: 20 * time.Millisecond})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "backend.connect")
		a.owner.talks(echoes)
		stream := a.connect(as(t, key), t, hello(scope))
		_, err := stream.Recv()
		require.NoError(t, err)
		keys := adminv1.NewApiKeyServiceClient(a.conn)
		list, err := keys.ListApiKeys(as(t, a.operator), &adminv1.ListApiKeysRequest{Parent: scope.Name()})
		require.NoError(t, err)
		_, err = keys.RevokeApiKey(as(t, a.operator), &adminv1.RevokeApiKeyRequest{Name: list.GetApiKeys()[0].GetName()})
		require.NoError(t, err)
		begun := time.Now()
		require.Equal(t, codes.Unauthenticated, ended(t, stream).Code())
		require.Less(t, time.Since(begun), 5*time.Second)
	})
}

func TestStream_OwnersErrorComesThrough(t *testing.T) {
	a, scope, key := rig(t)
	a.owner.talks(echoes)
	stream := a.connect(as(t, key), t, hello(scope))
	require.NoError(t, stream.Send(delta("fail")))
	got := ended(t, stream)
	require.Equal(t, codes.FailedPrecondition, got.Code())
	require.Equal(t, "the owner says no", got.Message())
	a.owner.talks(func(*method.Method, grpc.ServerStream) error { return errors.New("secret text") })
	got = ended(t, a.connect(as(t, key), t, hello(scope)))
	require.Equal(t, codes.Internal, got.Code())
	require.NotContains(t, got.String(), "secret text")
}

func TestStream_CallerThatGoesEndsTheOwnersSide(t *testing.T) {
	a, scope, key := rig(t)
	gone := make(chan struct{})
	a.owner.talks(func(_ *method.Method, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		close(gone)
		return nil
	})
	ctx, cancel := context.WithCancel(as(t, key))
	stream := a.connect(ctx, t, hello(scope))
	_, err := stream.Recv()
	require.NoError(t, err)
	cancel()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the owner's stream goes on")
	}
}

func TestStream_AKeyHasSoManyOpen(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{StreamsPerKey: 2})
	scope := dbtest.Company(t, d)
	key, other := a.key(t, scope, "*"), admin.NewKey()
	require.NoError(t, admin.EnsureAPIKey(t.Context(), d, scope, "other", other, "*"))
	a.owner.talks(echoes)
	var open []connection
	for range 2 {
		stream := a.connect(as(t, key), t, hello(scope))
		_, err := stream.Recv()
		require.NoError(t, err)
		open = append(open, stream)
	}
	require.Equal(t, codes.ResourceExhausted, ended(t, a.connect(as(t, key), t, hello(scope))).Code())
	require.Equal(t, 429, a.rest(t, key, "GET", "/v1/"+scope.Name()+":watch?topics=conversations", "").status, "watches count too")
	free := a.connect(as(t, other), t, hello(scope))
	_, err := free.Recv()
	require.NoError(t, err, "another key has its own")
	require.NoError(t, open[0].CloseSend())
	require.Equal(t, codes.OK, ended(t, open[0]).Code())
	again := a.connect(as(t, key), t, hello(scope))
	_, err = again.Recv()
	require.NoError(t, err)
}

func TestStream_DoesNotHoldUpAStop(t *testing.T) {
	a, scope, key := rig(t)
	a.owner.talks(echoes)
	stream := a.connect(as(t, key), t, hello(scope))
	_, err := stream.Recv()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begun := time.Now()
	require.NoError(t, a.svc.Stop(ctx))
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Equal(t, codes.Unavailable, ended(t, stream).Code())
}

func TestStream_CallerThatReadsNothingStillEndsWithItsKey(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{Recheck: 20 * time.Millisecond})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "backend.connect")
	gone := make(chan struct{})
	a.owner.talks(func(_ *method.Method, stream grpc.ServerStream) error {
		defer close(gone)
		big := &adminv1.ConnectResponse{Frame: &adminv1.ConnectResponse_Event{Event: &adminv1.BackendEvent{Body: make([]byte, 64<<10)}}}
		for {
			if err := stream.SendMsg(big); err != nil {
				return err
			}
		}
	})
	a.connect(as(t, key), t, hello(scope))
	keys := adminv1.NewApiKeyServiceClient(a.conn)
	list, err := keys.ListApiKeys(as(t, a.operator), &adminv1.ListApiKeysRequest{Parent: scope.Name()})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(a.owner.got()) == 1 }, 10*time.Second, time.Millisecond)
	_, err = keys.RevokeApiKey(as(t, a.operator), &adminv1.RevokeApiKeyRequest{Name: list.GetApiKeys()[0].GetName()})
	require.NoError(t, err)
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the stream goes on")
	}
}
