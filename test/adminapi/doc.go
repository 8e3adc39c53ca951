// Package adminapi holds tests of the admin API together with a service that really
// owns what it manages; services themselves never import one another.
package adminapi
