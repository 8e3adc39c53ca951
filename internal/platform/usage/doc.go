// Package usage counts what each Company uses and says whether it may use more. A
// process counts in its memory and adds that to the rows of the day every few seconds and
// when it stops; a crash loses what it counted since. Quotas are judged by the totals
// as last read, with what was counted here since then: of n processes each may let through
// what comes to it in one interval before it knows of the others'.
//
// Rows are kept by this package in whichever process counts; discovery serves them.
package usage
