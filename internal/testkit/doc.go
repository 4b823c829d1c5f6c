// Package testkit is what tests share: the repository's root, the captured machines that lie beside it, and folders
// that are cheap to fill.
package testkit
