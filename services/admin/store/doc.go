// Package store keeps keys and answered requests in the database.
package store
