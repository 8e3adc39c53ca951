// Package bus rings doorbells between the processes of an installation. It owns
// the one NATS connection of a process, or the NATS server inside it, and the
// form of every subject.
//
// A doorbell says that something may have changed and where to look; it is never
// the only copy of anything. Whoever listens reads the database again, and reads
// it again after every reconnect. Pieces of messages that are being written are the
// exception: they may get lost. The package must not know what the messages of
// the services mean.
package bus
