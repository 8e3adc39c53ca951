// Package publicnet gives the tests of a package a network of their own, where names
// of the test lead to addresses that look public. So they can drive `poppyfield serve`
// with its address guard on, as it runs in production, and nothing leaves the machine.
//
// It runs the test binary once more inside new network and mount namespaces of Linux:
// as root, or as anybody where the kernel allows user namespaces.
package publicnet
