// Package app decides what discovery does: which Companies there are, what they
// publish, which domains they speak for, and how their Users sign in (Poppy 3, 3.1,
// 3.2, 4.4). It knows neither gRPC nor HTTP nor SQL, and reaches no identity provider
// but to try what a Company set up.
package app
