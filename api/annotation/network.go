package annotation

import (
	"fmt"
	"slices"
)

// GangNetworkTopology holds a NetworkTopologySpec: in which domains of the network the pods of a gang are.
const GangNetworkTopology = "gang.scheduling.koordinator.sh/network-topology-spec"

// GangNetworkTopologyIndex is the rank of a Pod in its gang, from 0: members that follow each other get neighboring
// places where GangNetworkTopology says something.
const GangNetworkTopologyIndex = "gang.scheduling.koordinator.sh/network-topology-index"

// Strategies of a GatherRule.
const (
	MustGather   = "MustGather"
	PreferGather = "PreferGather"
)

const (
	maxGatherRules = 8
	maxLayerName   = 253
	maxPodMultiple = 1000
)

// NetworkTopologySpec says in which domains of the network the pods of a gang are.
type NetworkTopologySpec struct {
	GatherStrategy []GatherRule `json:"gatherStrategy,omitempty"`
}

// GatherRule is about one layer of the ClusterNetworkTopology.
type GatherRule struct {
	Layer string `json:"layer"`
	// Strategy is MustGather: all pods are in one domain of the layer; or PreferGather: in as few as possible.
	Strategy string `json:"strategy"`
	// PodCountMultiple divides the number of pods in each domain of the layer, up to 1000; 0 and 1 ask nothing. At
	// most one rule may say it.
	PodCountMultiple int `json:"podCountMultiple,omitempty"`
}

// String returns the canonical JSON.
func (s NetworkTopologySpec) String() string { return encode(s) }

// ParseNetworkTopologySpec reads a NetworkTopologySpec.
func ParseNetworkTopologySpec(text string) (NetworkTopologySpec, []Warning, error) {
	return read(text, func(r *reader, s *NetworkTopologySpec) {
		const list = "gatherStrategy"
		if len(s.GatherStrategy) > maxGatherRules {
			r.refuse(list, Error{Text: fmt.Sprintf("lists %d layers: supported up to %d", len(s.GatherStrategy),
				maxGatherRules)})
		}
		multiples := 0
		for i := range s.GatherStrategy {
			g := &s.GatherStrategy[i]
			field := fmt.Sprintf("%s.%d", list, i)
			earlier := s.GatherStrategy[:i]
			switch {
			case g.Layer == "" || len(g.Layer) > maxLayerName:
				r.refuse(field+".layer", Error{Text: fmt.Sprintf(
					"must name a layer of the ClusterNetworkTopology, with up to %d letters", maxLayerName)})
			case slices.ContainsFunc(earlier, func(o GatherRule) bool { return o.Layer == g.Layer }):
				r.refuse(field+".layer", Error{Text: fmt.Sprintf("layer %.64q is listed twice", g.Layer)})
			case g.Strategy == "":
				r.refuse(field+".strategy", Error{Text: "must be one of MustGather, PreferGather"})
			}
			r.word(field+".strategy", &g.Strategy, []string{MustGather, PreferGather})
			if g.PodCountMultiple < 0 || g.PodCountMultiple > maxPodMultiple {
				r.refuse(field+".podCountMultiple", Error{Text: fmt.Sprintf("must be from 0 to %d", maxPodMultiple)})
			}
			if g.PodCountMultiple > 1 {
				multiples++
			}
			if multiples > 1 {
				r.refuse(field+".podCountMultiple", Error{Text: "only one rule may say it"})
			}
		}
	})
}
