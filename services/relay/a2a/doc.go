// Package a2a speaks with an agent by the Agent2Agent protocol (JSON-RPC binding), in
// its versions 1.0 and 0.3: the agent card, requests, and answers, streamed or whole.
//
// It does no I/O, and must not know where the agent is or what holds the key.
package a2a
