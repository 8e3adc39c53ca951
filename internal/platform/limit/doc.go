// Package limit counts how often something may be done, in the memory of one
// process and within a fixed number of keys, and finds the address of a client
// behind proxies. It must not know what is limited; keys name the Company.
package limit
