// Package scheduler asks the scheduler what would be if the cluster were another one. Filters are the scheduler's: the
// descheduler has none of its own.
package scheduler
