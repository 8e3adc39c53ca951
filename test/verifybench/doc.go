// Package verifybench measures how many requests to a Company's APIs are judged in a
// second, by each of the ways there are, beside how many ES256 signatures the same
// machine verifies in the same run. `make bench-verify` runs it and prints a table;
// elsewhere it is skipped.
package verifybench
