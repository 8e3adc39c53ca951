package connect

import "strings"

// RefusedError is an ErrRefused. Its text holds nothing of a token or a code.
type RefusedError struct {
	// Code is the OAuth error code that the provider gave, such as access_denied; empty
	// where it gave none, and "other" for one that no code looks like.
	Code   string
	detail string
}

// Error says what was wrong.
func (e *RefusedError) Error() string {
	s := ErrRefused.Error() + ": " + e.detail
	if e.Code != "" {
		s += ": " + e.Code
	}
	return s
}

// Unwrap returns ErrRefused.
func (*RefusedError) Unwrap() error { return ErrRefused }

func refused(detail string) error { return &RefusedError{detail: detail} }

func refusedWith(code, detail string) error {
	// Anybody can have put it into the URL: only what a code looks like gets any further.
	if len(code) > 64 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		code = "other"
	}
	return &RefusedError{Code: code, detail: detail}
}
