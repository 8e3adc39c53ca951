// Package httpx owns how this product speaks HTTP: the limits and the shutdown of
// servers, the middlewares every handler runs under, and the two mappings from a
// problem to an HTTP answer (problem.go for the admin API, oautherror.go for OAuth
// and Poppy endpoints).
//
// It must not know a route or a Company; what a problem means was decided before.
package httpx
