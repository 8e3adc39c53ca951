// Package credentials checks what Users type to prove who they are, on the sign-in
// page and in Mediated Sign-In alike: it counts attempts for every process at once,
// asks the Company, and keeps what a one-time code needs until it comes.
//
// Credentials and codes pass through. They are in no error, no log and no row; of
// what the User typed as their name, a keyed hash is.
package credentials
