// Package child starts other programs for tests so that none of them outlives the
// test binary, however that ends: a small watchdog process holds one end of a pipe
// and ends the child as soon as the test binary's end closes, which the kernel does
// even after SIGKILL.
//
// It knows nothing of what it starts.
package child
