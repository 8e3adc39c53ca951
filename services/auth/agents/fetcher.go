package agents

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses that fetched texts are refused by.
const (
	documentForm clause.ID = "poppy-0.1/4.1#d43" // 200 and a JSON type only, no redirects
	privateKeys  clause.ID = "poppy-0.1/4.1#d9"  // private members: refused with that reason
	keysForm     clause.ID = "poppy-0.1/4.1#14"  // a key from jwks_uri signs the client assertion
)

// Request asks for one public text by GET. Redirects must not be followed.
type Request struct {
	URL      string
	MaxBytes int64         // of the body; more is an error of the fetcher
	Timeout  time.Duration // of the whole exchange
	Accept   string
}

// Response is an answer of any status.
type Response struct {
	Status      int
	Header      http.Header // Cache-Control, Expires, Age and Date are read
	ContentType string
	Body        []byte
}

// Fetcher makes requests to foreign servers, past the address guard. An error that
// has, itself or wrapped, a method SafeDetail() string tells by it what went wrong
// between us and the agent's server, in words that the agent may read; an error
// without is taken for a fault of our own and not remembered against the agent.
type Fetcher interface {
	Fetch(ctx context.Context, r Request) (Response, error)
}

type safeError interface{ SafeDetail() string }

// fetched is a body that came with status 200 and a JSON type.
type fetched struct {
	body        []byte
	contentType string
	lifetime    time.Duration
}

// get fetches one text; what names it in details. The second result says whether
// the failure is the agent's and may be remembered.
func (d *Directory) get(ctx context.Context, what, url string, limit int64, accept string) (fetched, bool, *problem.Error) {
	now := d.cfg.Now()
	r, err := d.fetcher.Fetch(ctx, Request{URL: url, MaxBytes: limit, Timeout: d.cfg.Timeout, Accept: accept})
	if err != nil {
		var safe safeError
		if errors.As(err, &safe) {
			return fetched{}, true, refuse(documentForm, what+" could not be fetched: "+safe.SafeDetail()).WithCause(err)
		}
		return fetched{}, false, refuse(documentForm, what+" could not be fetched").WithCause(err)
	}
	detail := ""
	switch {
	case r.Status >= 300 && r.Status <= 399:
		detail = "the answer was " + strconv.Itoa(r.Status) + ", and redirects are not followed"
	case r.Status != http.StatusOK:
		detail = "the answer was " + strconv.Itoa(r.Status) + " instead of 200"
	case !isJSON(r.ContentType):
		detail = "the answer is not application/json or a +json type"
	case int64(len(r.Body)) > limit:
		detail = "the answer is larger than allowed"
	}
	if detail != "" {
		return fetched{}, true, refuse(documentForm, what+" could not be fetched: "+detail)
	}
	return fetched{body: r.Body, contentType: r.ContentType, lifetime: lifetime(r.Header, now)}, false, nil
}

func isJSON(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	return essence == "application/json" || strings.HasSuffix(essence, "+json")
}

func (d *Directory) fetchDocument(ctx context.Context, id cimd.ClientID) (cimd.Document, fetched, bool, *problem.Error) {
	f, blame, failure := d.get(ctx, "the client document", id.String(), cimd.MaxDocument, "application/json")
	if failure != nil {
		return cimd.Document{}, f, blame, failure
	}
	doc, err := cimd.ParseClient(id, f.contentType, f.body)
	if err != nil {
		return cimd.Document{}, f, true, problem.As(err)
	}
	return doc, f, false, nil
}

func (d *Directory) fetchKeys(ctx context.Context, doc cimd.Document) (jose.KeySet, fetched, bool, *problem.Error) {
	f, blame, failure := d.get(ctx, "the key set at jwks_uri", doc.JWKSURI, jose.MaxKeySet, "application/jwk-set+json, application/json")
	if failure != nil {
		return jose.KeySet{}, f, blame, failure
	}
	keys, err := jose.ParseKeySet(f.body)
	switch {
	case errors.Is(err, jose.ErrPrivateKey):
		return jose.KeySet{}, f, true, refuse(privateKeys, "the key set at jwks_uri publishes a private or shared key").WithCause(err)
	case errors.Is(err, jose.ErrTooLarge):
		return jose.KeySet{}, f, true, refuse(keysForm, "the key set at jwks_uri is too large").WithCause(err)
	case err != nil:
		return jose.KeySet{}, f, true, refuse(keysForm, "the key set at jwks_uri is not a sound JWK set").WithCause(err)
	case keys.Len() == 0:
		return jose.KeySet{}, f, true, refuse(keysForm, "the key set at jwks_uri has no usable public key")
	}
	return keys, f, false, nil
}

func refuse(id clause.ID, detail string) *problem.Error {
	return problem.New(problem.Unauthenticated, problem.InvalidClient, id, "%s", detail)
}
