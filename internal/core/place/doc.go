// Package place answers whether a request fits a machine, and where exactly.
//
// Fits reads the summary of a view: it is what the scheduler's Filter asks, O(NUMA nodes), no allocation. Try computes
// the exact offer that Reserve commits, or the reason why there is none. On one view Fits accepts exactly when Try does.
package place
