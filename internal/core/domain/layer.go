package domain

import (
	"slices"
	"strings"
)

// Rule asks that members are in one domain of the network.
type Rule struct {
	Layer string // of Layers; empty where Label says it
	Label string // of nodes: those with one value are a domain
	Must  bool   // all in one domain; else in as few as possible
	// Multiple divides the number of members in each domain; 0 asks nothing.
	Multiple int
}

// String names the domains.
func (g Rule) String() string {
	if g.Layer != "" {
		return "layer " + g.Layer
	}
	return "label " + g.Label
}

// Layers that every cluster has.
const (
	NodeLayer    = "NodeTopologyLayer"    // each node is a domain
	ClusterLayer = "ClusterTopologyLayer" // all nodes are
)

// Layer is one level of a cluster's network, as its administrator describes it.
type Layer struct {
	Name   string
	Parent string   // the layer whose domains contain those of this one; empty for the outermost
	Labels []string // of nodes: the first that a node has names its domain
}

// Layers are the levels of a cluster's network. They never change. The zero value has NodeLayer and ClusterLayer alone.
type Layers struct {
	by map[string]Layer
}

// NewLayers returns layers by name; of namesakes the first counts.
func NewLayers(list []Layer) *Layers {
	l := &Layers{by: map[string]Layer{}}
	for _, layer := range list {
		if _, known := l.by[layer.Name]; !known && layer.Name != NodeLayer && layer.Name != ClusterLayer {
			l.by[layer.Name] = layer
		}
	}
	return l
}

// Knows reports whether a rule can be followed.
func (l *Layers) Knows(g Rule) bool {
	_, known := l.by[g.Layer]
	return known || g.Layer == "" || g.Layer == NodeLayer || g.Layer == ClusterLayer
}

// chain returns a layer and those that contain it, from inside out, each once.
func (l *Layers) chain(name string) (chain []Layer) {
	for layer, known := l.by[name]; known; layer, known = l.by[layer.Parent] {
		if slices.ContainsFunc(chain, func(o Layer) bool { return o.Name == layer.Name }) {
			break
		}
		chain = append(chain, layer)
	}
	return chain
}

// Depth orders rules from the outermost layer to the innermost.
func (l *Layers) Depth(g Rule) int {
	switch g.Layer {
	case NodeLayer:
		return len(l.by) + 1
	case ClusterLayer:
		return -1
	}
	return len(l.chain(g.Layer))
}

// DomainOf returns the domain of a node by a rule, with those that contain it; empty for a node that is in none.
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
