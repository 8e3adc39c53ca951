// Package devserver starts the built binary as `poppyfield dev` and gives tests what a
// stranger has: the ready file and an HTTPS client. It imports nothing of the product.
package devserver
