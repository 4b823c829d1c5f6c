// Package nodescaling keeps Nodes right for programs that add and remove nodes.
//
//	NodeResourceTopology, Device ─► isReported ─► the Node without the startup taint
//	Reservation ─► holdsCapacity ─► annotations that keep the Node, by server-side apply
//
// A new Node may have the taint tenon.sh/agent-not-ready until the agent has reported its machine: without it a pod
// could start on the node before Tenon knows the CPUs and devices there. Agents may not change the spec of Nodes.
//
// Autoscalers do not read Reservations, so a node whose capacity is only reserved looks empty to them. A field manager
// of its own marks what this package has written: it removes nothing else, also after a restart, and all of it when
// protection is switched off.
package nodescaling
