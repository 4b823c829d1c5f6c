// Package quiet decides what disturbs a pod on its CPUs beside other pods: the kernel's balancing, its tick and
// callbacks, interrupts, sleeping clocks, and the sibling threads of its cores.
//
// Examine answers for a set of CPUs, in the order of worth: the first measure that does not hold gains most. It reads
// facts that the agent publishes with the machine; it changes nothing. Counts.Since measures what remains: how often
// interrupts fire on the CPUs of a pod.
package quiet
