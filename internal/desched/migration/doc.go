// Package migration is the controller of PodMigrationJobs: it moves pods to places that are reserved for them.
//
//	PodMigrationJob ─► arbitrate (evict.State) ─► step (core/move) ─► write the status ─► act
//	                                                ▲                                     │
//	          caches, then the API server itself ───┘     Reservation, Eviction, finalizer ◄┘
//
// A pass looks at every job with what the caches have. Where a step would change something, the job, its pod and its
// Reservation are read from the API server and the step is decided again, so that nothing is done because of a stale
// cache. The status is written with the resource version that was read: of two processes, one writes and acts.
//
// All that a process has to remember is in the objects: arbitration writes what the pod was (its node, workload and
// gang) into the job, the Reservation has the name of the job, and an eviction has its time in the job before the
// Eviction API is called. A job that another process began goes on.
//
// The checks of core/evict are asked when a job starts and again immediately before the eviction. A pod of a gang that
// would lose its minimum is evicted when all members that must move with it have their places.
package migration
