// Package app decides what discovery does: which Companies there are, what they
// publish, and which domains they speak for (Poppy 3, 3.1, 3.2). It knows neither
// gRPC nor HTTP nor SQL.
package app
