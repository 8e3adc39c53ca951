// Package agents is the directory of Personal Agents: for a client_id it returns the
// agent's checked client document and key set (Poppy 4.1), fetched when needed and
// kept for as long as the agent's server allows.
//
// It owns the fetching rules and the caches of both. What it holds is public and the
// same for every Company; whether a Company lets an agent in is decided elsewhere and
// never kept here. It does not know how a fetch reaches the Internet: a [Fetcher]
// does that.
package agents
