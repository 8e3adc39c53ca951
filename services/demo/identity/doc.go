// Package identity is Noodle Bar's own identity provider: its customers' accounts, the
// page where they sign in, and OpenID Connect for the applications that it registers.
//
// It is what a company has before it hears of personal agents. It must not know
// Poppyfield, the shop, or what its applications do with a sign-in.
package identity
