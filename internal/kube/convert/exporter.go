package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Exported contains the settings of the kubelet's topology manager that a NodeResourceTopology has outside of
// annotations, in the form of any exporter. A field is "" if it is absent or invalid.
type Exported struct {
	// Policy and Scope are in the kubelet's spelling.
	Policy, Scope string
	// MaxNUMANodes is max-allowable-numa-nodes: a number of at least minMaxNUMANodes.
	MaxNUMANodes string
	// Attribute is the attribute that says Policy; "" where a word of topologyPolicies does.
	Attribute string
}

// ReadExported reads topologyPolicies and attributes as Facts does, which also reports what is left out.
func ReadExported(nrt *v1alpha2.NodeResourceTopology) Exported {
	r := factReader{nrt: nrt}
	r.words()
	r.attributes()
	return r.exported
}

func (e *Exported) field() string {
	if e.Attribute == "" {
		return "topologyPolicies"
	}
	return "attributes[" + e.Attribute + "]"
}

// minMaxNUMANodes is the least max-allowable-numa-nodes that a kubelet starts with.
const minMaxNUMANodes = 8

// topologyWord is a word of topologyPolicies, which names policy and scope at once.
type topologyWord struct{ word, policy, scope string }

// topologyWords are the words that NodeResourceTopology defines, then SingleNUMANode of the examples that it came with.
func topologyWords() []topologyWord {
	const (
		container, pod = annotation.TopologyScopeContainer, annotation.TopologyScopePod
		best, one      = annotation.KubeletTopologyBestEffort, annotation.KubeletTopologySingleNUMA
	)
	return []topologyWord{
		{"None", annotation.KubeletTopologyNone, ""},
		{"BestEffort", best, ""},
		{"BestEffortContainerLevel", best, container},
		{"BestEffortPodLevel", best, pod},
		{"Restricted", annotation.KubeletTopologyRestricted, ""},
		{"RestrictedContainerLevel", annotation.KubeletTopologyRestricted, container},
		{"RestrictedPodLevel", annotation.KubeletTopologyRestricted, pod},
		{"SingleNUMANodeContainerLevel", one, container},
		{"SingleNUMANodePodLevel", one, pod},
		{"SingleNUMANode", one, ""},
	}
}

// exporter reads topologyPolicies, attributes and zones. What means nothing or contradicts itself is reported.
func (r *factReader) exporter() {
	r.words()
	word := r.exported
	r.attributes()
	if attribute := r.exported.Policy; word.Policy != "" && attribute != word.Policy {
		r.onNRT("topologyPolicies", word.Policy,
			fmt.Errorf("says %s and the attribute %s says %s: the attribute counts",
				word.Policy, annotation.AttributeTopologyPolicy, attribute))
	}
	r.readZones()
}

// words reads topologyPolicies: the first word that is known counts.
func (r *factReader) words() {
	known := topologyWords()
	//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
	for _, word := range r.nrt.TopologyPolicies {
		i := slices.IndexFunc(known, func(w topologyWord) bool {
			return w.word == word || w.policy == word &&
				w.scope == ""
		})
		switch {
		case i < 0:
			var allowed []string
			for _, w := range known {
				allowed = append(allowed, w.word)
			}
			r.onNRT("topologyPolicies", word, errors.New(annotation.Unsupported(word, allowed...)))
		case r.exported.Policy == "":
			r.exported.Policy, r.exported.Scope = known[i].policy, known[i].scope
		}
	}
}

// attributes are the standard ones of v1alpha2; the last of a name counts.
func (r *factReader) attributes() {
	for _, a := range r.nrt.Attributes {
		into, allowed := &r.exported.Policy, topologyPolicyNames()
		switch a.Name {
		case annotation.AttributeTopologyPolicy:
		case annotation.AttributeTopologyScope:
			into, allowed = &r.exported.Scope, []string{annotation.TopologyScopeContainer, annotation.TopologyScopePod}
		case annotation.AttributeMaxNUMANodes:
			if n, err := strconv.Atoi(a.Value); err != nil || n < minMaxNUMANodes {
				r.onNRT("attributes["+a.Name+"]", a.Value, fmt.Errorf("want a number of at least %d", minMaxNUMANodes))
				continue
			}
			into, allowed = &r.exported.MaxNUMANodes, []string{a.Value}
		default:
			continue
		}
		if !slices.Contains(allowed, a.Value) {
			r.onNRT("attributes["+a.Name+"]", a.Value, errors.New(annotation.Unsupported(a.Value, allowed...)))
			continue
		}
		if *into = a.Value; a.Name == annotation.AttributeTopologyPolicy {
			r.exported.Attribute = a.Name
		}
	}
}

func topologyPolicyNames() []string {
	return []string{
		annotation.KubeletTopologyNone, annotation.KubeletTopologyBestEffort, annotation.KubeletTopologyRestricted,
		annotation.KubeletTopologySingleNUMA,
	}
}

// zone is a zone that is a NUMA node, with the kernel's id.
type zone struct {
	id int
	*v1alpha2.Zone
}

// readZones reads the zones that are NUMA nodes: of those that are there twice the first, and none when there are more
// than any machine has. What cannot be used is left out and reported: zones may have another writer, and CPU sets do
// not depend on distances.
func (r *factReader) readZones() {
	list, nodes := r.nrt.Zones, 0
	for i := range list {
		if list[i].Type == annotation.ZoneTypeNode {
			nodes++
		}
	}
	if nodes > topo.MaxNUMANodes {
		r.onNRT("zones", "", fmt.Errorf("%d zones of type %s, at most %d are supported: none is used", nodes,
			annotation.ZoneTypeNode, topo.MaxNUMANodes))
		return
	}
	r.zones, r.shape = make([]zone, 0, nodes), make([]topo.NUMASpec, 0, nodes)
	for i := range list {
		z := &list[i]
		id, ok := zoneID(z.Name)
		switch {
		case z.Type != annotation.ZoneTypeNode:
		case !ok:
			r.onNRT("zones["+z.Name+"]", z.Name,
				fmt.Errorf("want the name %s<id of the NUMA node> for a zone of type %s", annotation.ZoneNamePrefix,
					annotation.ZoneTypeNode))
		case slices.ContainsFunc(r.zones, func(o zone) bool { return o.id == id }):
			r.onNRT("zones["+z.Name+"]", z.Name, errors.New("is there twice: the first counts"))
		default:
			r.zones, r.shape = append(r.zones, zone{id, z}), append(r.shape, topo.NUMASpec{ID: id})
		}
	}
	slices.SortFunc(r.shape, func(a, b topo.NUMASpec) int { return cmp.Compare(a.ID, b.ID) })
	for _, z := range r.zones {
		if len(z.Costs) == 0 {
			continue
		}
		row, err := distances(r.shape, z.Costs)
		if err != nil {
			r.onNRT("zones["+z.Name+"].costs", "", fmt.Errorf("%w: 10 to itself and 20 to others are assumed", err))
		}
		i, _ := indexOf(r.shape, z.id)
		r.shape[i].Distances = row
	}
}

func indexOf(specs []topo.NUMASpec, id int) (int, bool) {
	return slices.BinarySearchFunc(specs, id, func(s topo.NUMASpec, id int) int { return cmp.Compare(s.ID, id) })
}

func zoneID(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, annotation.ZoneNamePrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(text, 10, 16)
	return int(id), err == nil
}

// ZoneName is the name of the zone of a NUMA node.
func ZoneName(numaID int) string { return annotation.ZoneNamePrefix + strconv.Itoa(numaID) }

// distances returns a full row in the order of specs, or an error if the costs are invalid.
func distances(specs []topo.NUMASpec, costs v1alpha2.CostList) ([]int, error) {
	row := make([]int, len(specs))
	for _, c := range costs {
		id, ok := zoneID(c.Name)
		i, known := indexOf(specs, id)
		switch {
		case !ok || !known:
			return nil, fmt.Errorf("%q is not a zone of type %s", c.Name, annotation.ZoneTypeNode)
		case c.Value <= 0 || c.Value > 255: // the firmware's table has one byte per distance
			return nil, fmt.Errorf("%s is at distance %d, want 1 to 255", c.Name, c.Value)
		case row[i] != 0:
			return nil, fmt.Errorf("%s is there twice", c.Name)
		}
		row[i] = int(c.Value)
	}
	if i := slices.Index(row, 0); i >= 0 {
		return nil, fmt.Errorf("%d of %d zones are named, %s is not", len(costs), len(specs), ZoneName(specs[i].ID))
	}
	return row, nil
}
