package main

import (
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// watched is a hint provider whose answers are seen on their way to the merge.
type watched struct {
	topologymanager.HintProvider
	node   *node
	closes bool // the last provider of a merge
}

// asks records the container that a merge is about.
func (w *watched) asks(container string) { w.node.merge.last = container }

// allocates makes device plugins prefer what the request says of a container.
func (w *watched) allocates(container string) {
	m := &w.node.merge
	m.last = container
	for name, plugin := range w.node.plugins {
		plugin.prefer = m.prefer[container][name]
	}
}

// seen records the hints and ends the admission when the merge would try more combinations than the machine's cap.
func (w *watched) seen(hints map[string][]topologymanager.TopologyHint) map[string][]topologymanager.TopologyHint {
	m := &w.node.merge
	if w.node.trace && m.lists == nil {
		m.lists = map[string][]offer{}
	}
	for name, list := range hints {
		m.combinations *= float64(max(1, w.node.counted(list)))
		if w.node.trace {
			m.lists[name] = offers(list)
		}
	}
	if !w.closes {
		return hints
	}
	if w.node.trace {
		m.all = append(m.all, m.lists)
		m.lists = nil
	}
	m.most = max(m.most, m.combinations)
	if w.node.cap > 0 && m.combinations > w.node.cap {
		panic(tooMany{})
	}
	m.combinations = 1
	return hints
}

// counted is how many hints of a list the merge looks at: single-numa-node drops most before.
func (n *node) counted(list []topologymanager.TopologyHint) int {
	if !n.single {
		return len(list)
	}
	kept := 0
	for _, h := range list {
		if h.NUMANodeAffinity == nil || h.Preferred && h.NUMANodeAffinity.Count() == 1 {
			kept++
		}
	}
	return kept
}

// offers keeps nil and empty apart: do not care, and cannot.
func offers(list []topologymanager.TopologyHint) []offer {
	if list == nil {
		return nil
	}
	out := []offer{}
	for _, h := range list {
		o := offer{Preferred: h.Preferred}
		if h.NUMANodeAffinity != nil {
			o.Mask = h.NUMANodeAffinity.GetBits()
		}
		out = append(out, o)
	}
	return out
}
