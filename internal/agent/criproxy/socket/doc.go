// Package socket makes unix sockets that belong to one process and one user: others cannot connect at any moment, a second
// process is refused, and what a dead one left behind is no obstacle.
package socket
