// Package changes tells open streams which conversations of their Company may have
// changed. It has one subscription for the process and knows no content.
package changes
