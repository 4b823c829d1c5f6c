// Package verb holds the commands of tenon that start and stop a local cluster, and the hidden ones that its child
// processes are started with.
package verb
