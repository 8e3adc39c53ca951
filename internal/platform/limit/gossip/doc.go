// Package gossip has the Limiters of several processes count together: each tells the
// others, a few times a second and in one message of bounded size, what it let through,
// and takes from its own buckets what the others tell. What is lost, refused or not told
// in time is let through too much once, and no more; a process that hears nobody counts
// for itself.
//
// It must not know what is limited.
package gossip
