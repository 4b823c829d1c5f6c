package domain

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// Request is members of gangs that are placed by the same rules, so that they share a domain.
type Request struct {
	Members []string // UIDs of the members to place, in the order in which they are tried
	Held    []string // UIDs of the members that have a node already, or a reservation on one
	Min     int      // so many of Members must be placed; at most len(Members)
	Rules   []Rule   // from the innermost layer to the outermost
	// Joint asks that the devices of all members are on one node and well linked, where that is possible.
	Joint bool
	// Ranked asks that members that follow each other share a domain of the innermost layer, as far as possible.
	Ranked bool
}

// Bound returns the innermost rule that must hold; the zero value without one.
func (r *Request) Bound() Rule {
	if i := slices.IndexFunc(r.Rules, func(rule Rule) bool { return rule.Must }); i >= 0 {
		return r.Rules[i]
	}
	return Rule{}
}

// Site is a node on which members may be placed.
type Site struct {
	Name string   // of the node
	In   []string // the node's domain by rule of the Request; "" where the node is in none
	Free []int64  // by dimension of the Demand, at least 0; Unlimited where the node does not count the resource
	Held int      // how many of Request.Held are on the node
	// Reserved is how many Reservations that members may use are on the node. Their room is in Free.
	Reserved int
	Link     int64 // how well the members' devices would be linked on the node; 0 where that does not matter
}

// Unlimited is an amount that no demand exceeds.
const Unlimited = math.MaxInt64

// Demand is a lower bound of what the members ask for, by dimension (CPU, memory and so on).
type Demand struct {
	Each []int64 // the smallest request of a member
	All  []int64 // the sum of the Request.Min smallest requests
}

// Domain is nodes on which the members may be placed together.
type Domain struct {
	Name  string
	Rule  Rule   // the rule whose domain it is; zero for the whole cluster
	Parts []Part // at least one
}

// Part is some nodes of a Domain. Members fill the Parts in order: a Part with a number gets exactly so many members.
// Of Parts without a number, a member goes to that of the member before it, else to the next one with room.
type Part struct {
	Sites   []int // indexes of the nodes, ascending
	Members int   // how many members the Part gets; 0 for any number
}

// Combinations yields one domain for each of several requests, every combination once. The last request's domains
// change first.
func Combinations(requests []iter.Seq[Domain]) iter.Seq[[]Domain] {
	return func(yield func([]Domain) bool) { combine(requests, nil, yield) }
}

// combine yields each combination of the choices of all requests, and reports whether to go on.
func combine(requests []iter.Seq[Domain], chosen []Domain, yield func([]Domain) bool) bool {
	if len(requests) == 0 {
		return yield(slices.Clone(chosen))
	}
	for d := range requests[0] {
		if !combine(requests[1:], append(chosen, d), yield) {
			return false
		}
	}
	return true
}

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
	// GPUCliqueLayer has a domain for each set of nodes whose GPUs are in one NVLink fabric, such as a rack. An
	// administrator may give it a parent or other labels.
	GPUCliqueLayer = "GPUCliqueTopologyLayer"
)

// GPUCliqueLabel is the label of nodes that names their domain of GPUCliqueLayer. NVIDIA's feature discovery writes it.
const GPUCliqueLabel = "nvidia.com/gpu.clique"

// Layer is one level of a cluster's network, as its administrator describes it.
type Layer struct {
	Name   string
	Parent string   // the layer whose domains contain those of this one; empty for the outermost
	Labels []string // keys of labels of nodes: the first one that a node has names the node's domain
}

// Layers is the levels of a cluster's network. It never changes. The zero value contains the layers that every cluster
// has.
type Layers struct {
	// byName has the layers of the list, and GPUCliqueLayer if one of them is in it.
	byName map[string]Layer
}

// NewLayers returns the layers of a list. Of several layers with one name the first counts. GPUCliqueLayer without
// labels has GPUCliqueLabel.
func NewLayers(list []Layer) *Layers {
	l := &Layers{byName: map[string]Layer{}}
	for _, layer := range list {
		if _, known := l.byName[layer.Name]; known || layer.Name == NodeLayer || layer.Name == ClusterLayer {
			continue
		}
		if layer.Name == GPUCliqueLayer && len(layer.Labels) == 0 {
			layer.Labels = cliques.Labels
		}
		l.byName[layer.Name] = layer
	}
	for _, layer := range l.byName {
		if layer.Parent == GPUCliqueLayer {
			l.byName[GPUCliqueLayer], _ = l.find(GPUCliqueLayer)
			break
		}
	}
	return l
}

// cliques is GPUCliqueLayer where no list has it.
var cliques = Layer{Name: GPUCliqueLayer, Labels: []string{GPUCliqueLabel}}

// find returns a layer other than NodeLayer and ClusterLayer.
func (l *Layers) find(name string) (layer Layer, known bool) {
	if layer, known = l.byName[name]; !known && name == GPUCliqueLayer {
		return cliques, true
	}
	return layer, known
}

// Knows reports whether the layer of a rule is defined. A rule with a label needs no layer.
func (l *Layers) Knows(g Rule) bool {
	_, known := l.find(g.Layer)
	return known || g.Layer == "" || g.Layer == NodeLayer || g.Layer == ClusterLayer
}

// chain returns a layer and those that contain it, from the innermost to the outermost. A cycle of parents ends the
// chain.
func (l *Layers) chain(name string) (chain []Layer) {
	for layer, known := l.find(name); known; layer, known = l.find(layer.Parent) {
		if slices.ContainsFunc(chain, func(o Layer) bool { return o.Name == layer.Name }) {
			break
		}
		chain = append(chain, layer)
	}
	return chain
}

// Depth returns how many layers contain that of a rule, plus one: the innermost layer has the greatest depth. A
// GPUCliqueLayer that is not in the list is within all layers of it.
func (l *Layers) Depth(g Rule) int {
	_, listed := l.byName[g.Layer]
	switch {
	case g.Layer == NodeLayer:
		return len(l.byName) + 2
	case g.Layer == GPUCliqueLayer && !listed:
		return len(l.byName) + 1
	case g.Layer == ClusterLayer:
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
