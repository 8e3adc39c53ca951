// Package jose holds the parts of JOSE that the protocol needs: compact signed JWTs
// (RFC 7515, RFC 7519), public JSON Web Keys and key sets (RFC 7517, RFC 7638), and
// the five signature algorithms a Personal Agent may use. Everything else of JOSE is
// absent on purpose: no encryption, no symmetric keys, no "none", no critical headers.
//
// Parsing and verifying are separate steps. A parsed JWS has proved nothing; only
// Key.Verify and KeySet.Verify do. Which claims a token must have is not known here.
package jose
