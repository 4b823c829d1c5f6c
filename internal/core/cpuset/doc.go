// Package cpuset is a set of CPUs as a value: comparable, copied by assignment, never allocated.
//
// A Set holds dense CPU indices 0…1023, the indices that package topo gives to the CPUs of one machine. The kernel's
// own ids may be sparse; topo.Machine translates at the gate (ParseList, FormatList). On a machine whose ids are
// 0…n-1 both are the same number, so Parse and String, which speak the kernel's list format
// ("0-3,8,10-11"; see "List format" in cpuset(7)), can be used directly.
package cpuset
