// Package evict decides which pods may be evicted, and which of the waiting PodMigrationJobs may start.
//
//	pods, owners, nodes, namespaces, gangs ┐
//	PodMigrationJobs, finished ones too    ├─► State ─┬─► Check(pod)      []Refusal; none: evict it now
//	NewPolicy(Settings) ─► Policy ─────────┘          ├─► Arbitrate(jobs) passed, refused
//	                                                  └─► Unit, Avoid     what moves together, where it must not go
//
// A State is what the caller's caches have. It has no clock and no memory of its own: sliding windows, the token
// bucket, the backoff of owners, the nodes that pods were moved away from and the budget of failed jobs are all
// computed from the jobs that the State has, so that a restart changes no answer. Policy.Retention says how long a
// finished job is needed for that.
//
// # Refusals
//
// Each Code is produced by one function. A final refusal holds whatever else happens, and ends a job; the others may
// be gone at the next look. A failed lookup is reported alone, because nothing else can be trusted then. Final refusals
// come before the others.
//
// The pod that is asked about, and its own job, never count against a limit: a pod may go if the others that count are
// fewer than the limit. A pod is unavailable if it is not ready, does not run, terminates or is in a job that has
// started; each UID counts once. Replicas that do not exist are unavailable as well.
//
// The job of a pod may be checked at any time: when it is proposed (CheckMove with Round), when it waits (Arbitrate),
// and, as the last step before the Eviction API is called, when its new place is held (Check).
//
// # Arbitration
//
// Arbitrate orders the waiting jobs and lets each start that all others before it leave room for:
//
//  1. jobs whose workload has started jobs; the jobs of a gang, or of the pods of a Job, follow each other
//  2. lower priority, then lower QoS class: BE, LS, LSR and LSE
//  3. lower eviction cost, then lower pod deletion cost
//  4. where all this is equal, the workloads alternate; then the older job, then the name
//
// Members of a gang that would lose its minimum start with all others of their gang group or not at all: their jobs
// pass together. Koordinator takes the newest job first; the oldest first is a decision, so that no job waits for ever.
package evict
