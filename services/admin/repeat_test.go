package admin_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// counting is an owner that makes a new domain at every call.
func counting(n *atomic.Int64) func(context.Context, *method.Method, proto.Message) (proto.Message, error) {
	return func(_ context.Context, m *method.Method, _ proto.Message) (proto.Message, error) {
		if m.Desc.Name() != "CreateDomain" {
			return m.NewOutput(), nil
		}
		return &adminv1.Domain{Uid: fmt.Sprintf("dom_%d", n.Add(1))}, nil
	}
}

func TestRequestID_ParallelRepeatsMakeOneThing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "*")
		var made atomic.Int64
		a.owner.script(counting(&made))
		req := &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: uuid.NewString()}
		ctx := as(t, key)
		var wait sync.WaitGroup
		uids := make([]string, 20)
		errs := make([]error, 20)
		for i := range uids {
			wait.Go(func() {
				got, err := adminv1.NewDomainServiceClient(a.conn).CreateDomain(ctx, req)
				uids[i], errs[i] = got.GetUid(), err
			})
		}
		wait.Wait()
		for i := range uids {
			require.NoError(t, errs[i])
			require.Equal(t, "dom_1", uids[i])
		}
		require.EqualValues(t, 1, made.Load())
		// By REST it is the same request, also a day later but for a second.
		a.clock.Advance(24*time.Hour - time.Second)
		path := "/v1/" + scope.Name() + "/domains?request_id=" + req.GetRequestId()
		require.Equal(t, "dom_1", a.rest(t, key, "POST", path, `{"domain":"a.example"}`).json(t)["uid"])
		a.clock.Advance(2 * time.Second)
		require.Equal(t, "dom_2", a.rest(t, key, "POST", path, `{"domain":"a.example"}`).json(t)["uid"])
	})
}

func TestRequestID_OfAnotherRequestIsRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key, other := a.key(t, scope, "*"), a.key(t, scope, "*")
		var made atomic.Int64
		a.owner.script(counting(&made))
		c := adminv1.NewDomainServiceClient(a.conn)
		id := uuid.NewString()
		_, err := c.CreateDomain(as(t, key), &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: id})
		require.NoError(t, err)
		_, err = c.CreateDomain(as(t, key), &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "b.example"}, RequestId: id})
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.Equal(t, "REQUEST_ID_REUSED", reasonOf(err))
		a.rest(t, key, "POST", "/v1/"+scope.Name()+":publish", `{"request_id":"`+id+`"}`).problem(t, 409, "REQUEST_ID_REUSED")
		require.EqualValues(t, 1, made.Load())
		// Ids belong to the key that used them.
		got, err := c.CreateDomain(as(t, other), &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: id})
		require.NoError(t, err)
		require.Equal(t, "dom_2", got.GetUid())
	})
}

func TestRequestID_ErrorsAreNotRepeated(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "*")
		a.owner.script(func(context.Context, *method.Method, proto.Message) (proto.Message, error) {
			return nil, problem.New(problem.Conflict, problem.AlreadyExists, "", "there is one")
		})
		req := &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: uuid.NewString()}
		c := adminv1.NewDomainServiceClient(a.conn)
		_, err := c.CreateDomain(as(t, key), req)
		require.Equal(t, codes.AlreadyExists, status.Code(err))
		var made atomic.Int64
		a.owner.script(counting(&made))
		got, err := c.CreateDomain(as(t, key), req)
		require.NoError(t, err)
		require.Equal(t, "dom_1", got.GetUid())
	})
}

// The answer that got lost is the one the repeat is for.
func TestRequestID_CallerThatLeavesGetsItsAnswerLater(t *testing.T) {
	a, scope, key := rig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	var made atomic.Int64
	a.owner.script(func(ctx context.Context, m *method.Method, req proto.Message) (proto.Message, error) {
		close(begun)
		<-finish
		return counting(&made)(ctx, m, req)
	})
	req := &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: uuid.NewString()}
	c := adminv1.NewDomainServiceClient(a.conn)
	ctx, leave := context.WithCancel(as(t, key))
	gone := make(chan error, 1)
	go func() { _, err := c.CreateDomain(ctx, req); gone <- err }()
	<-begun
	leave()
	require.Equal(t, codes.Canceled, status.Code(<-gone))
	close(finish)
	got, err := c.CreateDomain(as(t, key), req)
	require.NoError(t, err)
	require.Equal(t, "dom_1", got.GetUid())
	require.EqualValues(t, 1, made.Load())
}

// A secret that is shown once is repeated, and lies sealed in the database.
func TestRequestID_AnswerWithASecretIsSealed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		req := &adminv1.CreateApiKeyRequest{Parent: scope.Name(), ApiKey: &adminv1.ApiKey{Scopes: []string{"*"}}, RequestId: uuid.NewString()}
		c := adminv1.NewApiKeyServiceClient(a.conn)
		first, err := c.CreateApiKey(as(t, a.operator), req)
		require.NoError(t, err)
		again, err := c.CreateApiKey(as(t, a.operator), req)
		require.NoError(t, err)
		require.True(t, proto.Equal(first, again))
		require.NoError(t, d.SystemRead(t.Context(), db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
			rows, err := tx.AnsweredRequest.Query().All(ctx)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			require.NotContains(t, string(*rows[0].Response), first.GetKey())
			return nil
		}))
	})
}

// What is kept of a request doesn't let anybody guess a short secret in it, and still
// tells the request after the root key has changed.
func TestRequestID_RequestIsKeptAsAKeyedHash(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		req := &adminv1.CreateApiKeyRequest{Parent: scope.Name(), ApiKey: &adminv1.ApiKey{Scopes: []string{"*"}}, RequestId: uuid.NewString()}
		first, err := adminv1.NewApiKeyServiceClient(a.conn).CreateApiKey(as(t, a.operator), req)
		require.NoError(t, err)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
		require.NoError(t, err)
		bare := sha256.Sum256(raw)
		require.NoError(t, d.SystemRead(t.Context(), db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
			row, err := tx.AnsweredRequest.Query().Only(ctx)
			require.NoError(t, err)
			require.Len(t, row.RequestHash, len(bare))
			require.NotEqual(t, bare[:], row.RequestHash)
			return nil
		}))
		rotated := adminv1.NewApiKeyServiceClient(startWith(t, d, admin.Config{}, root(t, 2)).conn)
		again, err := rotated.CreateApiKey(as(t, a.operator), req)
		require.NoError(t, err)
		require.True(t, proto.Equal(first, again))
		req.ApiKey.DisplayName = "another"
		_, err = rotated.CreateApiKey(as(t, a.operator), req)
		require.Equal(t, "REQUEST_ID_REUSED", reasonOf(err))
	})
}

// A process that died in the middle leaves a claim behind.
func TestRequestID_AbandonedClaimIsTakenOver(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "*")
		req := &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: uuid.NewString()}
		c := adminv1.NewDomainServiceClient(a.conn)
		_, err := c.CreateDomain(as(t, key), req)
		require.NoError(t, err)
		require.NoError(t, d.SystemWrite(t.Context(), db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
			return tx.AnsweredRequest.Update().ClearResponse().Exec(ctx)
		}))
		ctx, cancel := context.WithTimeout(as(t, key), 300*time.Millisecond)
		defer cancel()
		_, err = c.CreateDomain(ctx, req)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err), "somebody may still be at it")
		a.clock.Advance(3 * time.Minute)
		_, err = c.CreateDomain(as(t, key), req)
		require.NoError(t, err)
		require.Len(t, a.owner.got(), 2)
	})
}

func TestPrune_DropsOldAnswers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{PruneEvery: 20 * time.Millisecond})
		scope := dbtest.Company(t, d)
		_, err := adminv1.NewDomainServiceClient(a.conn).CreateDomain(as(t, a.key(t, scope, "*")), &adminv1.CreateDomainRequest{
			Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}, RequestId: uuid.NewString(),
		})
		require.NoError(t, err)
		count := func() (n int) {
			require.NoError(t, d.SystemRead(t.Context(), db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) (err error) {
				n, err = tx.AnsweredRequest.Query().Count(ctx)
				return err
			}))
			return n
		}
		require.Equal(t, 1, count())
		a.clock.Advance(25 * time.Hour)
		require.Eventually(t, func() bool { return count() == 0 }, 10*time.Second, 10*time.Millisecond)
	})
}
