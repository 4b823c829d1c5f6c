// Package checkpoint computes the checksum of what the kubelet's device manager records. The kubelet takes it of the
// text of a structure of Go's, so the names and the order of types and fields, this package's name too, are part of it.
package checkpoint
