// Package method reads the admin API out of its protobuf descriptors: what each
// method asks of its caller, where a request names its Company, and which HTTP
// requests it answers. A method that leaves any of this open is an error, so that
// nothing is served by oversight.
//
// It must not know keys, databases or connections.
package method
