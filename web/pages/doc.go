// Package pages owns what Users see: the pages of sign-in and of connected agents, as
// HTML made on the server, with their style sheet and their texts in every language.
//
// The pages work without scripts and without their style sheet, load nothing from
// other sites, and are written with the headers that keep them from being framed or
// cached. Whatever a Company, an agent or a User has named is escaped and set apart
// from our own words.
//
// It does not know requests, cookies, storage or how a sign-in goes on: callers fill
// in a Page and say where its form leads.
package pages
