// Package elasticquota is the scheduler plugin ElasticQuota: it holds pods back whose quota, or a quota above it, has
// too little left, and preempts inside the quota of a pod.
//
//	PreFilter ── Admit ──► nothing more to do in this cycle, or a refusal
//	                          │
//	PostFilter ◄──────────────┘  upstream's preemption, on victims that MayPreempt allows;
//	    └─ RemovePod, AddPod, Filter: the same check on what the dry run has taken and given
//	Reserve ── check and reserve in one step ── Unreserve
//
// The account is kube.Quotas, one for all profiles. It has each event before the scheduling queue has it, so that a
// hint sees what the next attempt will see. The plugin stands in the place of DefaultPreemption: a refusal by a quota
// must not reach a preemption that evicts pods of others.
//
// # Preemption
//
// A pod that its quota refuses may have victims in its own quota only, of lower priority; other quotas that use more
// than their share are made to give it back elsewhere (core/quota, Revoker). The dry run has two limits to satisfy at
// once: RemovePod takes a victim off the node, and off a trial of the account, and Filter refuses until both have
// enough. Only nodes with a possible victim are looked at. While a pod is nominated, the account counts it, so that
// pods which come in the meantime do not get what its victims leave.
//
// A pod for which terminating pods leave enough evicts none and waits for these (Await).
//
// # Copies
//
// Questions (whatif) change min and max and add pods on a Copy of the account. Members of a gang that are planned
// together are marked as Admitted: the plan asks the quotas about all of them at once. What a plan tries is marked as
// Planned.
package elasticquota
