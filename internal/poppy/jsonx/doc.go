// Package jsonx reads JSON that strangers wrote. It is stricter than
// encoding/json: a repeated member name, an unpaired surrogate, invalid UTF-8, a
// NUL character and nesting beyond a limit are refused, so that two layers can
// never read one document in two ways and no text arrives that a database
// cannot store. Reading is without reflection and mostly without allocation.
//
// It also writes the canonical form of RFC 8785, by which documents are compared.
//
// The package must not know any protocol: which members an object has is the
// business of its callers, and so is the cap on a document's size.
package jsonx
