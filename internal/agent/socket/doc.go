// Package socket creates unix sockets that belong to one process and one user: other users can never connect, a second
// process gets an error, and the stale socket of a dead process is replaced.
package socket
