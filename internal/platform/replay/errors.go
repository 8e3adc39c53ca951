package replay

import "errors"

// What Claim refuses with; compare with errors.Is.
var (
	// ErrSeen: somebody claimed the same value before.
	ErrSeen = errors.New("replay: seen before")
	// ErrExpired: the value's own time is over, so it must not be accepted and is not remembered.
	ErrExpired = errors.New("replay: expired")
	// ErrBeforeMemory: the value may have been used before the memory began.
	ErrBeforeMemory = errors.New("replay: issued before the memory began")
	// ErrUnavailable: nobody can say. The caller must refuse for now (503), never let through.
	ErrUnavailable = errors.New("replay: memory unavailable")
)
