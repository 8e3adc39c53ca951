// Package telemetry sets up what a process tells about itself: traces and metrics
// by OpenTelemetry, and logs. Its log handler is the last line that keeps secrets
// and the words of Users out of logs, by the type of a value, by its key and by
// its shape; callers don't log them in the first place.
//
// The package must not know the services.
package telemetry
