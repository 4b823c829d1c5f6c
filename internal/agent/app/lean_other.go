//go:build !linux

package app

// dropPages does nothing where the program's pages cannot be told.
func dropPages() {}
