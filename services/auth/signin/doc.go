// Package signin decides how a User's sign-in on the pages goes on: from the agent's
// link or user code by the Company's login to consent (Poppy 4.5 and 4.6). It also
// answers for the Company's own login page, and for the page of connected agents.
//
// It must not know HTTP, cookies or pages; package browser does. Nothing here trusts
// what an earlier step found if it may have changed since: the agent's admission and
// document, and what the Company offers, are looked at again before they count.
package signin
