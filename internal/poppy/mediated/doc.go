// Package mediated reads the two requests of Mediated Sign-In and writes its answers
// (Poppy 4.7). It judges form only: which fields a Company asks for is told to it, and
// whether credentials and codes are right is not known here. Nothing that it returns
// as an error holds any of what it read.
package mediated
