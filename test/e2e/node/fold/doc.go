// Package fold lets a machine with many CPUs be played on one with few: a virtual CPU id stands for the real id
// id mod N, every virtual NUMA node for node 0.
//
// Kubelet, container runtime, NRI plugins and the agent speak of virtual ids alone. Two places are in front of the
// kernel and fold: the wrapper of runc (foldrunc) and the agent's cgroup tree. Both tell a Store what was asked for,
// since the kernel's files cannot: 2 and 4 are the same CPU there.
package fold
