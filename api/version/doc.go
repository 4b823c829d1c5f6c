// Package version says which release or commit of Tenon a program was built from.
package version
