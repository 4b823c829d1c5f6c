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
package elasticquota
