// Package limit counts how often something may be done, within a fixed number of
// keys, and finds the address of a client behind proxies. A Limiter counts in the
// memory of one process; what others took from the same keys can be taken from it
// (Spend), and it says what was taken here (Spent): package gossip carries that
// between processes. It must not know what is limited, nor how processes talk; keys
// name the Company.
package limit
