// Package gateway is how a Company's gateway asks whether to let an agent's request through: the question, the headers
// that tell an API who is asking, and Envoy's form of both. It decides nothing: every question is AccessService's.
package gateway
