// Package isolate computes what files of a machine must contain so that exclusive CPUs are left alone: pure functions
// from the value that a file had before to the value that it is to have, and never from the present value.
//
//	original value ┐
//	online CPUs    ├─► Steering ─► affinity of an interrupt, default affinity, CPUs that irqbalance avoids
//	exclusive CPUs ┘
//
// So the order in which pods come and go has no effect, and with the last pod each file gets its original value back.
package isolate
