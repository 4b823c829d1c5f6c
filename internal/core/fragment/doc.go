// Package fragment values what nodes with GPUs have free: how much of it the pods that are expected could not use.
//
//	arrivals ─► Histogram ─┬► Generation ─► Value(state), Choose(state, pod) ─► Normalize
//	free GPUs ─► Supply  ──┘
//
// A pod belongs on the node, and on the GPUs of it, whose value falls the most. The value of a state is what is left
// idle after sequences of pods, drawn from the demand, were offered to it. A part of the measure of FGD (Weng et al.,
// "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023) is
// added for pods with several GPUs, which short sequences rarely contain. All states are offered the same sequences, so
// the noise of drawing them cancels out between nodes.
//
// Pods may be limited to some GPU models. The more of a free GPU they are expected to take, the less its value falls
// with another pod on it, which so leaves the GPU to them. What they take is their part of the demand for all that is
// free, divided by what their models have free.
//
// Amounts of a GPU are in milli: 1000 is a whole GPU. Values are in micro-GPUs: 1,000,000 is a whole GPU. All is
// computed in integers, so equal input gives equal output on every machine.
package fragment
