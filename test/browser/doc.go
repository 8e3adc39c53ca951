// Package browser looks at the sign-in pages in a real browser, Debian's Chromium,
// driven by the npm package playwright-core: what axe-core finds, whether the keyboard
// alone is enough, whether a narrow screen is. The script beside it knows the pages
// only as a browser does; the Go test serves them all.
package browser
