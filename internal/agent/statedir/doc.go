// Package statedir is the agent's folder on its node: the files that it needs again after a restart, and the lock that
// keeps a second agent off the machine.
package statedir
