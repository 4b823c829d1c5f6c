// Package publish keeps what the API has of a node equal to what its agent knows: the NodeResourceTopology and, where
// it is asked for, Volcano's Numatopology.
//
//	Source ─► probe ─► objects ─► report ─► API
package publish
