// Package rpc serves the Company's side of its conversations on the admin API: it
// translates between messages of admin.v1 and the app.
package rpc
