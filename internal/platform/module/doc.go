// Package module starts and stops the parts of a process in order and says whether
// they are ready. It must not know what a part does.
package module
