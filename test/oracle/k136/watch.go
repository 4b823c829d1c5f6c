package main

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// watched is a hint provider whose answers are seen on their way to the merge.
type watched struct {
	topologymanager.HintProvider
	node   *node
	kind   string
	closes bool // the last provider of a merge
}

func (w *watched) GetTopologyHints(p *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	w.node.merge.last = c.Name
	return w.seen(w.HintProvider.GetTopologyHints(p, c))
}

func (w *watched) GetPodTopologyHints(p *v1.Pod) map[string][]topologymanager.TopologyHint {
	return w.seen(w.HintProvider.GetPodTopologyHints(p))
}

func (w *watched) Allocate(p *v1.Pod, c *v1.Container) error {
	m := &w.node.merge
	m.last = c.Name
	for name, plugin := range w.node.plugins {
		plugin.prefer = m.prefer[c.Name][name]
	}
	return w.HintProvider.Allocate(p, c)
}

// seen records the hints and ends the admission when the merge would try more combinations than the machine's cap.
func (w *watched) seen(hints map[string][]topologymanager.TopologyHint) map[string][]topologymanager.TopologyHint {
	m := &w.node.merge
	shown := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		list := hints[name]
		text := []string{}
		counted := 0
		for _, h := range list {
			if h.NUMANodeAffinity == nil {
				text = append(text, fmt.Sprintf("any %v", h.Preferred))
				counted++
				continue
			}
			text = append(text, fmt.Sprintf("%v %v", h.NUMANodeAffinity.GetBits(), h.Preferred))
			if !w.node.single || h.Preferred && h.NUMANodeAffinity.Count() == 1 {
				counted++
			}
		}
		m.combinations *= float64(max(1, counted))
		shown[w.kind+" "+name] = text
		if list == nil {
			shown[w.kind+" "+name] = "any"
		}
	}
	if w.node.trace {
		m.hints = append(m.hints, shown)
	}
	if w.closes {
		m.most = max(m.most, m.combinations)
		if w.node.cap > 0 && m.combinations > w.node.cap {
			panic(tooMany{})
		}
		m.combinations = 1
	}
	return hints
}
