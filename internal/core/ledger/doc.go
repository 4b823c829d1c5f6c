// Package ledger is the versioned account of one machine: which pod holds which CPUs,
// and which memory of which NUMA node.
//
//	Facts (topology, kubelet, node policies)  ┐
//	Entries (one per pod that matters)        ┴─► View (immutable): pools, free CPUs, summary – all derived
//
// A Ledger is owned by one writer; a View may be read by anybody without a lock. Offers are computed on a View
// (package place), committed at its version, and fail with ErrExpired when the ledger has moved on. Put, Remove and
// SetFacts take what the API server says; a ledger rebuilt from the same objects equals the live one.
//
// Pods that are confined to NUMA nodes and exclusive CPUs share the pools of these nodes under one rule: Summary.Room.
//
// On a node whose kubelet is predicted every pod that the kubelet gives something of its own has one Source: what the
// node reports counts, else what was predicted when the pod was bound, else what the model computes (Computed). The
// last is for pods of other schedulers and for those whose prediction a report has overtaken. A kubelet decides by its
// state alone, so for one state and one order there is one answer, and no worst case is needed for it: such pods are
// admitted by the model in the order of their creation, on top of what is known. Only the order itself is uncertain.
// Unconfirmed names those pods, and package place asks for every order of few of them; nodes with many rank last.
// Assuming instead that such a pod takes as much as it can of the very NUMA nodes that a newcomer needs would turn away
// pods that the kubelet admits, on every node that has started a pod and not reported it yet.
package ledger
