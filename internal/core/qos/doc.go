// Package qos says which CPUs a pod may use: the eight principles of Koordinator's CPU orchestration as one function.
//
//	LSE                    exclusive CPUs, shared with no pod
//	LSR                    exclusive CPUs, shared with BE alone
//	LS, Burstable, …       the CPU shared pool
//	BE, BestEffort         the BE CPU shared pool
//	Guaranteed, integer    the kubelet's, when its static policy pinned it already; else like LS
package qos
