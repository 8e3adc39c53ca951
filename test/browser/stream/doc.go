// Package stream follows a conversation's stream with software that others wrote, curl
// and Debian's Chromium, through nginx as Debian ships it: for longer than nginx waits
// for an answer, and across a cut of its connections. The page in pages is an agent of
// its own, with a key of WebCrypto; stream.mjs opens it and passes on what it is told.
package stream
