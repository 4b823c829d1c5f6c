// Package hack tests the scripts beside it.
package hack
