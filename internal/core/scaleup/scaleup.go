package scaleup

import (
	"maps"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
)

// Pod is a pending pod for which an autoscaler acts.
type Pod struct {
	Request *place.Request
	Amounts amount.List // what it requests, 1 of "pods" included
	Nodes   []string    // the nodes whose labels and taints admit it, in the order in which they are tried
}

// Node is what a node has for pending pods.
type Node struct {
	Free     amount.List // allocatable, less what its pods request: what an autoscaler knows
	Reserved amount.List // of it, for Reservations; nil for nothing
}

// Limits bound what Plan asks for.
type Limits struct {
	Helpers  int // pods that get one
	Excluded int // nodes that a helper excludes: a pod that fits more by amounts gets none
}

// Helper stands for a pod that an autoscaler takes for placed.
type Helper struct {
	UID      string   // of the pod
	Excluded []string // the nodes that the pod fits by amounts
}

// Plan returns the helpers for pods, in their order. account returns the account of a node; it is called at most once
// for each node. Its cost is that of at most Excluded nodes for each pod.
func Plan(pods []Pod, nodes map[string]Node, account func(node string) *ledger.View, limits Limits) []Helper {
	p := packing{seen: map[string]amount.List{}, left: map[string]amount.List{}, views: map[string]*ledger.View{}}
	for name, n := range nodes {
		p.seen[name], p.left[name] = maps.Clone(n.Free), maps.Clone(n.Free)
		p.left[name].Take(n.Reserved)
	}
	empty := map[string]*ledger.View{}
	var helpers []Helper
	for i := range pods {
		pod := &pods[i]
		hidden := p.hides(pod)
		var fit []string
		for _, name := range pod.Nodes {
			if nodes[name].Free.Holds(pod.Amounts) {
				fit = append(fit, name)
			}
		}
		if len(fit) > limits.Excluded {
			continue
		}
		for _, name := range fit {
			if p.views[name] == nil {
				p.views[name] = account(name)
				empty[name] = ledger.New(withoutPods(p.views[name].Facts())).View()
			}
		}
		if p.starts(pod, fit) || !hidden || len(helpers) == limits.Helpers {
			continue
		}
		for _, name := range fit {
			if place.Fits(empty[name], pod.Request).OK() {
				helpers = append(helpers, Helper{pod.Request.UID, fit})
				break
			}
		}
	}
	return helpers
}

// withoutPods returns the facts of a node whose pods are gone.
func withoutPods(f *ledger.Facts) ledger.Facts {
	facts := *f
	facts.Given, facts.Used = nil, nil
	return facts
}

// packing is where the pods that were tried are. Each node of one map is in all others, but for views, which has those
// that were asked for.
type packing struct {
	seen  map[string]amount.List  // free by amounts
	left  map[string]amount.List  // free for the scheduler, by amounts
	views map[string]*ledger.View // and by accounts
}

// hides places a pod by amounts, and reports whether it fits.
func (p *packing) hides(pod *Pod) bool {
	for _, name := range pod.Nodes {
		if p.seen[name].Holds(pod.Amounts) {
			p.seen[name].Take(pod.Amounts)
			return true
		}
	}
	return false
}

// starts places a pod on one of the nodes as the scheduler does, and reports whether it fits.
func (p *packing) starts(pod *Pod, nodes []string) bool {
	for _, name := range nodes {
		if !p.left[name].Holds(pod.Amounts) {
			continue
		}
		offer, reason := place.Try(p.views[name], pod.Request)
		if !reason.OK() {
			continue
		}
		p.left[name].Take(pod.Amounts)
		p.views[name] = p.views[name].With(offer.Entry)
		return true
	}
	return false
}
