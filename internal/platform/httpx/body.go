package httpx

import (
	"errors"
	"io"
	"net/http"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// ReadBody reads a request's body of at most maxBytes. A longer one is
// REQUEST_TOO_LARGE, one that ends early INVALID_REQUEST.
func ReadBody(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	if r.ContentLength > maxBytes { // told before a byte of it is read
		w.Header().Set("Connection", "close")
		return nil, tooLarge(maxBytes)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if err == nil {
		return body, nil
	}
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(over.Limit)
	}
	return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the request's body could not be read").WithCause(err)
}

func tooLarge(limit int64) error {
	return problem.New(problem.TooLarge, problem.RequestTooLarge, "", "the request's body has more than %d bytes", limit)
}
