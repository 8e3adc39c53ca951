// Package cimd reads client ID metadata documents: the JSON behind a Personal Agent's
// client_id URL that says who the agent is, where its keys are and where Direct
// Sign-In may return to (Poppy 4.1).
//
// Fetching is not done here. Which addresses may be connected to, redirects, time
// limits and caching belong to the caller; so do a Company's allow and block lists.
package cimd
