// Package serving has what tenon-manager and tenon-descheduler have in common: the options, flags and the framework's
// manager of a component, who may read metrics and what stands beside them, and the metrics that name a component's
// version and configuration.
package serving
