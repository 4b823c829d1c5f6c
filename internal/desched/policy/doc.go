// Package policy runs the plugins of the descheduler.
//
//	interval, or a node's taints or labels change ─► Round: profiles ─► plugins ─► Move
//	Move: DefaultEvictor ─► core/evict ─► the scheduler's what-if, if asked for ─► a PodMigrationJob
//
// A plugin only proposes. Whether a pod may be moved is decided by core/evict, here when the move is proposed and again
// by the controller of PodMigrationJobs, which alone evicts pods. So a plugin cannot pass a limit, and a pod is moved
// for a plugin as it is for a user. With dryRun, the same is decided and nothing is written.
package policy
