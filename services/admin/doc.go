// Package admin is the service behind the admin API: the public gRPC server, REST
// and watches. It knows keys and lets calls through to the services that own the
// methods; of the resources it owns only the keys themselves.
package admin
