// Package terminal opens terminals for tests of what programs show on them.
package terminal
