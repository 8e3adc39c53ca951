// Package bench measures the built server from outside, as a Personal Agent and a
// Company's backend meet it, beside the machine's own floor: the same bytes over the
// same kind of connection, with the signatures and disk writes that nothing can save,
// and no product in between. `make bench` prints both side by side.
package bench
