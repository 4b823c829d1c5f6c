// Package app wires tenon-descheduler: what it observes, the controller of PodMigrationJobs, the policies that create
// such jobs, its health, its metrics and what it answers below /apis/v1.
package app
