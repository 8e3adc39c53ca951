// Package peer gives tests an HTTPS host of their own that the server under test
// reaches by name: for an agent's documents, a Company's backend, or a website. Its
// certificate comes from a CA made for it, which the server is told to trust.
package peer
