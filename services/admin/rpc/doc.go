// Package rpc translates between ApiKeyService and the use cases of keys. It decides nothing.
package rpc
