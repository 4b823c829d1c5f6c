// Package agent measures what the agent costs: a call of the runtime inside of it and through NRI, a call of the
// kubelet through the CRI proxy, its memory and idle CPU with 250 pods, and the start of a container with and without
// it. The two sides of each comparison alternate in one run, so that what else the machine does hits both.
//
// The measurements need the tag e2e_node, root and the tools of level 3; `make bench-agent` runs them and prints a
// table.
package agent
