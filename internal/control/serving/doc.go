// Package serving has what the servers of tenon-manager and tenon-descheduler have in common: who may read metrics and
// what stands beside them, and the metrics that name a component's version and configuration.
package serving
