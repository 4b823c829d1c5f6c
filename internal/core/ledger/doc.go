// Package ledger is the versioned account of one machine: which pod holds which CPUs,
// and which memory of which NUMA node.
//
//	Facts (topology, kubelet, node policies)  ┐
//	Entries (one per pod that matters)        ┴─► View (immutable): pools, free CPUs, summary – all derived
//
// A Ledger is owned by one writer; a View may be read by any goroutine without a lock. Offers are computed on a View
// (package place), committed at its version, and fail with ErrExpired when the ledger has moved on. Put, Remove and
// SetFacts take what the API server says; a ledger rebuilt from the same objects equals the live one.
//
// Pods that are confined to NUMA nodes and exclusive CPUs share the pools of these nodes under one rule: Summary.Room.
//
// What the node's kubelet has given to whom is a tenancy.State.
package ledger
