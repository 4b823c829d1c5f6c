// Package source reads again and again what can fail to be read. The last good value counts meanwhile, and a condition
// of the Node says so.
package source
