package domain

import (
	"slices"
	"strings"
)

// Rule asks that the members of a gang share a domain of the network.
type Rule struct {
	Layer string // the name of a layer; empty if Label describes the domains
	Label string // a label of nodes: the nodes with equal values are a domain
	Must  bool   // all members must be in one domain; else they are in as few domains as possible
	// Multiple asks that the number of members in each domain is a multiple of it; 0 and 1 ask nothing.
	Multiple int
}

// String names the rule's layer or label.
func (g Rule) String() string {
	if g.Layer != "" {
		return "layer " + g.Layer
	}
	return "label " + g.Label
}

// The layers that every cluster has.
const (
	NodeLayer    = "NodeTopologyLayer"    // each node is a domain of its own
	ClusterLayer = "ClusterTopologyLayer" // all nodes are one domain
)

// Layer is one level of a cluster's network, as its administrator describes it.
type Layer struct {
	Name   string
	Parent string   // the layer whose domains contain those of this one; empty for the outermost
	Labels []string // keys of labels of nodes: the first one that a node has names the node's domain
}

// Layers is the levels of a cluster's network. It never changes. The zero value contains NodeLayer and ClusterLayer
// only.
type Layers struct {
	byName map[string]Layer // without NodeLayer and ClusterLayer
}

// NewLayers returns the layers of a list. Of several layers with one name the first counts.
func NewLayers(list []Layer) *Layers {
	l := &Layers{byName: map[string]Layer{}}
	for _, layer := range list {
		if _, known := l.byName[layer.Name]; !known && layer.Name != NodeLayer && layer.Name != ClusterLayer {
			l.byName[layer.Name] = layer
		}
	}
	return l
}

// Knows reports whether the layer of a rule is defined. A rule with a label needs no layer.
func (l *Layers) Knows(g Rule) bool {
	_, known := l.byName[g.Layer]
	return known || g.Layer == "" || g.Layer == NodeLayer || g.Layer == ClusterLayer
}

// chain returns a layer and those that contain it, from the innermost to the outermost. A cycle of parents ends the
// chain.
func (l *Layers) chain(name string) (chain []Layer) {
	for layer, known := l.byName[name]; known; layer, known = l.byName[layer.Parent] {
		if slices.ContainsFunc(chain, func(o Layer) bool { return o.Name == layer.Name }) {
			break
		}
		chain = append(chain, layer)
	}
	return chain
}

// Depth returns how many layers contain that of a rule, plus one: the innermost layer has the greatest depth.
func (l *Layers) Depth(g Rule) int {
	switch g.Layer {
	case NodeLayer:
		return len(l.byName) + 1
	case ClusterLayer:
		return -1
	}
	return len(l.chain(g.Layer))
}

// DomainOf returns the domain of a node by a rule, as a path from the outermost domain that contains it
// ("spine/block"); empty for a node that is in no domain of the rule.
func (l *Layers) DomainOf(g Rule, node string, labels map[string]string) string {
	switch g.Layer {
	case "":
		return labels[g.Label]
	case NodeLayer:
		return node
	case ClusterLayer:
		return ClusterLayer
	}
	domain := ""
	for i, layer := range l.chain(g.Layer) {
		value := ""
		for _, key := range layer.Labels {
			if value = labels[key]; value != "" {
				break
			}
		}
		switch {
		case i == 0 && value == "":
			return ""
		case i == 0:
			domain = value
		default:
			domain = value + "/" + domain
		}
	}
	return strings.TrimLeft(domain, "/")
}
