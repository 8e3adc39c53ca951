// Package gateways puts real gateways in front of an API and lets agents call it through
// them, with the built server judging: nginx as Debian ships it, Caddy, and what Envoy does
// with our answers to its published client. Each is configured as docs/gateways.md says: the
// tests read the configurations there. The tests run in a network of their own, where the
// names in them lead to this machine.
package gateways
