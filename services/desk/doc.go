// Package desk is a terminal inbox: a person at a Company takes conversations over with
// it. Like every tool of a Company's own it knows nothing but the public admin API.
package desk
