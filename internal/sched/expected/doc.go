// Package expected publishes when pods and gangs that wait are expected to start: in a condition of their PodGroup.
// When they start, it measures by how much the first estimate was wrong.
package expected
