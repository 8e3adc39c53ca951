// Package conversations is the service that keeps conversations (Poppy 7). It owns
// the tables conversations, events and deliveries, answers Personal Agents on the
// public conversation endpoint and Companies on the admin API, and sees to it that
// every accepted message reaches the Company's backend.
//
// Proofs and tokens are judged by the sessions service, webhooks are signed and
// sent by the relay: this service knows neither keys nor addresses.
package conversations
