// Package proc keeps the child processes of a local cluster alive, and never longer than their parent.
//
// A child that ends is started again after a growing pause. The kernel kills it when its parent ends. It is a process
// group of its own, so that Ctrl-C reaches the parent alone, which then stops its children in the right order.
package proc
