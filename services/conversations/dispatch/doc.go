// Package dispatch brings claimed deliveries to the relay and its answers to the
// app: who may deliver how much at once, whose lease lasts, and when a failed
// attempt is made again. What an answer does to a conversation is the app's.
//
// A Company's deliveries never take more than the Company's share of slots, so that
// a hanging backend delays nobody else. What finds no slot waits in the database.
package dispatch
