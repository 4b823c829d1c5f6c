// Package observe follows the kubelet of a node: its settings, what it gave to which pod, what its managers have
// recorded, and how far Tenon has taken the CPUs over from it.
//
//	/configz ─────► settings  ─┐
//	PodResources ─► resources ─┼─► State: settings in force, mode, take-over, records
//	state files ──► records   ─┘
//
// Each of the three is a Source: its last good value stays in force while it cannot be read, and a condition of the
// Node says so. A Pace says how often it is read.
package observe
