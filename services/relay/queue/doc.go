// Package queue brings events to the endpoints that listen: the router makes a
// delivery of each event for each endpoint that wants it, and the worker leases what is
// due and has it told, again by the endpoint's schedule until the endpoint has taken
// it. Any number of processes do both at once. Everything is in the database: a
// doorbell only says when to look, and a look a second makes up for lost ones.
//
// Endpoints are independent of each other. None has more attempts under way than its
// policy allows, nor more than half of the slots that are free, so that endpoints which
// hang leave room for the others however many they are.
//
// How an attempt is made, signed and judged it does not know.
package queue
