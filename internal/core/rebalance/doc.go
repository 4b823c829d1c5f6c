// Package rebalance computes which pods would be better elsewhere: the arithmetic of the descheduler's plugins, without
// any rule about whether a pod may be moved.
//
// A Plan moves pods from source nodes to target nodes one by one. Each pod gets a target in which it leaves the limits
// of the target true, with what was moved before counted on both sides; the caller may refuse each move. So the sum of
// the moves is never more than the targets hold. A plan is greedy: it does not undo a move to make another possible.
// It costs sources × pods × targets × resources.
package rebalance
