// Package clients finds the plain clients of a Company: those that know nothing of Poppy
// and sign in for one of its MCP servers (Poppy 6). Their documents are found as those of
// Personal Agents are; where the Company allows it they may register themselves instead.
//
// It decides nothing about what they get.
package clients
