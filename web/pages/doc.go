// Package pages is the look and the words of what a User sees at a Company's sign-in:
// server-rendered, without scripts, in several languages. It knows nothing of how a
// sign-in goes on; it gets what to show and writes it.
package pages
