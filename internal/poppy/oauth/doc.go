// Package oauth reads what a Personal Agent sends to the OAuth endpoints of a Company
// and to everything that takes a Session Token: forms, the Authorization header,
// scopes, and the two assertions of Poppy 4.1 and 4.2.
//
// It judges form and cryptography only. Which agents, Sessions, tokens and resources
// exist, whether a jti was used before, and where keys are fetched from is not known
// here. Building responses is the business of the edges.
package oauth
