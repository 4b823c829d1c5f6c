// Package oracle proves internal/core/kubelet against the kubelet itself.
//
//	Draw ─► Case (machine, settings, pods that come and go)
//	           ├─► State.Admit ───────────────┐
//	           └─► kubelet (a program) ───────┴─► Compare ─► equal | documented | undocumented, shrunk
//
// The folder kubelet is a module of its own, with one module file per kubelet minor: a program that holds the
// managers of the kubelet and nothing of ours. Both sides read the same v1.Pod; ours goes through
// internal/kube/convert. Machines, settings and pods are drawn from a seed, each admission is put to both sides, and
// a difference is shrunk to a small case. The runs require the build tag oracle.
//
// # What is drawn
//
// Machines of 1 or 2 (45 %), 3 (5 %) and 4 to 10 (50 %) NUMA nodes: uneven, with sparse ids, with memory alone, with
// 1, 2 or 4 threads per core, hybrid, with L3 groups inside, below and across nodes. Every combination of CPU manager
// options that a kubelet starts with; CPUs reserved by id or by amount; memory policy None or Static with
// reservations and huge pages; all topology policies and both scopes; devices on one node, on two, without topology,
// unhealthy. Up to 12 pods with init containers, sidecars and app containers, of which some leave again; restarts of
// the kubelet, which admits all pods again from its checkpoints. TestDrawnCasesCoverTheLaw holds the shares of what
// is drawn. A run of 10,000 states or more fails unless 30 % of its states have 4 NUMA nodes or more and 10 % a merge
// of more than 1,000 combinations.
//
// After each admission the model goes on from what the kubelet gave: in half of the cases as its own prediction, in
// the other half as a report of it. State.Fits must say the same as State.Admit.
//
// The kubelet's merge is exponential. Up to 200 admissions with more than 100,000 combinations of hints are run
// apart, and up to 10 of which the model says that the kubelet never answers: no answer within 10 s is right for
// these.
//
// Where the device manager leaves a choice, the plugin of the program prefers what the model predicted; what it then
// gives is compared. On 15 % of the machines plugins prefer the reverse; the model must have said that the devices
// are open. CPU, memory and device ids of the kernel are mapped as the agent does it.
//
// # The program
//
// It reads one JSON request a line (start, admit, delete, restart) and writes one answer a line, so it can be used by
// hand:
//
//	cd test/oracle/kubelet
//	go build -tags nomsgpack -o k136 . && ./k136 < requests.json
//	go build -tags nomsgpack,k135 -modfile k135.mod -o k135 . && ./k135 < requests.json
//
// The device manager has its folder fixed below /var/lib; a program therefore runs itself again in a mount namespace
// of its own with an empty /var/lib.
package oracle
