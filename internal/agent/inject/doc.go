// Package inject decides which devices a container sees: those that the scheduler allocated to its pod, and no others.
//
//	annotation device-allocated ─┐
//	mode of the Device object   ─┼─► Decide ─► Answer: variables, device files, CDI names, mounts
//	cards of the machine (host) ─┤
//	what the container has      ─┼─► Check: nothing, or why it must not be created
//	what it can use as it runs  ─┴─► Compare: nothing, or what it should not, or cannot
//
// Decide is pure and is asked before a container exists: no runtime changes devices later. A container of a node whose
// GPUs are Tenon's gets NVIDIA_VISIBLE_DEVICES=void where it has none of them, whatever its image or its pod says. An
// allocation that cannot be given exactly is a Refusal: the container is not created. Describe writes the files by
// which runtimes resolve the CDI names.
package inject
