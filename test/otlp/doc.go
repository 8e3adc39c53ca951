// Package otlp gives tests an OpenTelemetry collector: it takes traces and metrics over
// gRPC, as the product exports them, and keeps them to be looked at.
package otlp
