package gate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/method"
	"github.com/poppyfield/poppyfield/services/admin/store"
)

// Reasons of this package.
const (
	// RequestIDReused says that a request_id came with another request before.
	RequestIDReused problem.Reason = "REQUEST_ID_REUSED"
	// RequestInProgress says that the first request with this request_id isn't answered yet.
	RequestInProgress problem.Reason = "REQUEST_IN_PROGRESS"
)

const (
	// answerLife is how long a first answer is repeated.
	answerLife = 24 * time.Hour
	// abandonedAfter is when a claim without an answer is taken for one whose process
	// died: well above callTimeout.
	abandonedAfter = 2 * time.Minute
	// repeatWait is how long a repeat waits for the first answer.
	repeatWait = 10 * time.Second

	answerPurpose  = "admin answer"
	requestPurpose = "admin request"
)

// Answers repeats first answers.
type Answers struct {
	store *store.Answers
	ring  *keys.Ring
	now   clock.Clock
	log   *slog.Logger
}

// NewAnswers makes Answers; answers are sealed with ring, since some show a secret.
func NewAnswers(s *store.Answers, ring *keys.Ring, now clock.Clock, log *slog.Logger) *Answers {
	return &Answers{store: s, ring: ring, now: now, log: log}
}

type forward func(context.Context, *method.Method, proto.Message) (proto.Message, error)

// once makes the request of a request_id once and gives its answer to every repeat.
// An error isn't kept: the next try is a first one again.
func (a *Answers) once(ctx context.Context, caller *app.Key, scope tenancy.Scope, m *method.Method, req proto.Message, requestID string, do forward) (proto.Message, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, err
	}
	hashes := a.hashes(scope, raw)
	id := caller.ID + ":" + requestID
	deadline := time.NewTimer(repeatWait)
	defer deadline.Stop()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		now := a.now()
		var standing store.Standing
		var sealed []byte
		for _, hash := range hashes {
			standing, sealed, err = a.store.Claim(ctx, id, m.FullName, hash, now, now.Add(-abandonedAfter), now.Add(-answerLife))
			if err != nil {
				return nil, err
			}
			if standing != store.Other {
				break
			}
		}
		switch standing {
		case store.Claimed:
			return a.first(ctx, scope, m, req, id, do)
		case store.Answered:
			return a.open(scope, m, id, sealed)
		case store.Other:
			return nil, problem.New(problem.Conflict, RequestIDReused, "", "this request_id came with another request before").
				WithField("request_id", "use a new one for every request")
		case store.Pending:
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
			continue
		case <-deadline.C:
			err = problem.New(problem.Unavailable, RequestInProgress, "", "the first request with this request_id is still being answered").WithRetryAfter(time.Second)
		case <-ctx.Done():
			err = ctx.Err()
		}
		wait.Stop()
		return nil, err
	}
}

// hashes are what tells a request from another one: by the current root key, and by
// former ones for requests of before a rotation. They are keyed, since a request may
// hold a secret that could be guessed.
func (a *Answers) hashes(scope tenancy.Scope, request []byte) [][]byte {
	all := a.ring.DeriveAll(scope.CompanyID(), requestPurpose)
	out := make([][]byte, 0, len(all))
	for _, key := range all {
		mac := hmac.New(sha256.New, key[:])
		mac.Write(request)
		out = append(out, mac.Sum(nil))
	}
	return out
}

// first makes the claimed request. It goes on when its caller has gone: who lost the
// answer will ask for it with the same request_id.
func (a *Answers) first(ctx context.Context, scope tenancy.Scope, m *method.Method, req proto.Message, id string, do forward) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	answered := false
	defer func() {
		if answered {
			return
		}
		if err := a.store.Drop(context.WithoutCancel(ctx), id); err != nil {
			a.log.WarnContext(ctx, "giving back a request_id", "method", m.FullName, "error", err)
		}
	}()
	out, err := do(ctx, m, req)
	if err != nil {
		return nil, err
	}
	// From here on the request has had its effect, so it must not be made again.
	answered = true
	if err := a.save(context.WithoutCancel(ctx), scope, id, out); err != nil {
		a.log.ErrorContext(ctx, "keeping an answer", "method", m.FullName, "error", err)
	}
	return out, nil
}

func (a *Answers) save(ctx context.Context, scope tenancy.Scope, id string, out proto.Message) error {
	raw, err := proto.Marshal(out)
	if err != nil {
		return err
	}
	sealed, err := a.ring.Seal(scope.CompanyID(), answerPurpose, id, raw)
	if err != nil {
		return err
	}
	return a.store.Save(ctx, id, sealed)
}

func (a *Answers) open(scope tenancy.Scope, m *method.Method, id string, sealed []byte) (proto.Message, error) {
	raw, err := a.ring.Open(scope.CompanyID(), answerPurpose, id, sealed)
	if err != nil {
		return nil, err
	}
	out := m.NewOutput()
	if err := proto.Unmarshal(raw, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Prune forgets answers that are repeated no longer.
func (a *Answers) Prune(ctx context.Context) error {
	_, err := a.store.Prune(ctx, a.now().Add(-answerLife))
	return err
}
