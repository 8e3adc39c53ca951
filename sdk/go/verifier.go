package poppy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Config of a Verifier.
type Config struct {
	// Company is its resource name, "companies/cmp_…".
	Company string
	// Conn reaches the admin API with a key that has the permission access.verify; Dial makes one.
	Conn grpc.ClientConnInterface
	// BaseURL is what stands before the path that the server sees, such as
	// "https://api.example.com". It is never taken from a request: a Host field is the sender's.
	BaseURL string
	// Local judges requests of LocalMethods without asking for each one.
	Local bool
	// LocalMethods are those that may be judged locally: GET and HEAD unless set. What was
	// judged locally is remembered in this process alone, so that a copy of a request which
	// reaches another process within 70 seconds is served once more there. Name others only
	// where every request with a key reaches the same process, or where repeating one does no harm.
	LocalMethods []string
	// MaxTokens and MaxProofs bound what is remembered; 0 is 100,000 and 2,000,000.
	MaxTokens, MaxProofs int
	// Now is the machine's clock unless set. Local judgement needs a clock that is right.
	Now func() time.Time
	// Log gets what the Company should know of; nil for nothing.
	Log *slog.Logger
}

// Request is a request as it came.
type Request struct {
	Method string
	// URL is the absolute address that the agent called; query and scheme make no difference.
	URL string
	// Authorization and DPoP are all values of these header fields.
	Authorization, DPoP []string
}

// Decision says whether to serve a request, and otherwise what to answer.
type Decision struct {
	Allowed bool
	// Session is who asks; nil where that is not established.
	Session *Session
	// Status, Reason and Body are set where it is refused.
	Status int
	Reason string // the error code, such as "invalid_token"
	Body   []byte // JSON
	// Header is to be put on the answer in any case.
	Header http.Header
	// API is the url of the entry of apis that the request is for.
	API string
}

// Verifier judges requests. It is safe for concurrent use.
type Verifier struct {
	cfg      Config
	api      adminv1.AccessServiceClient
	known    *knowledge
	proofs   *proofMemory
	requests *limit.Limiter
	stop     context.CancelFunc
	watching sync.WaitGroup
}

// New makes a Verifier that works until Close. The values of ctx count, its end doesn't.
func New(ctx context.Context, cfg Config) (*Verifier, error) {
	base, err := url.Parse(cfg.BaseURL)
	switch {
	case !strings.HasPrefix(cfg.Company, "companies/"):
		return nil, errors.New("poppy: Company is no resource name of a Company")
	case cfg.Conn == nil:
		return nil, errors.New("poppy: Conn is missing")
	case err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("poppy: BaseURL is no https URL without query and fragment")
	}
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	if cfg.LocalMethods == nil {
		cfg.LocalMethods = []string{http.MethodGet, http.MethodHead}
	}
	if cfg.Now == nil {
		cfg.Now = clock.System
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Verifier{
		cfg: cfg, api: adminv1.NewAccessServiceClient(cfg.Conn), known: newKnowledge(cfg.MaxTokens), proofs: newProofMemory(cfg.MaxProofs), requests: limit.New(0),
		stop: func() {},
	}
	if cfg.Local {
		ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
		v.watching.Go(func() { v.watch(ctx) })
	}
	return v, nil
}

// Close ends what New began.
func (v *Verifier) Close() {
	v.stop()
	v.watching.Wait()
}

// Verify judges a request, once: a proof is good once. An error means that nobody knows,
// and that the request must not be served.
func (v *Verifier) Verify(ctx context.Context, r Request) (*Decision, error) {
	if !v.cfg.Local || !slices.Contains(v.cfg.LocalMethods, r.Method) {
		return v.remote(ctx, r)
	}
	if d, ok := v.local(r); ok {
		return d, nil
	}
	return v.learn(ctx, r)
}
