package whatif

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// nodes is a snapshot with changed nodes. Not safe for concurrent use, apart from readers.
type nodes struct {
	Nodes
	// changed has copies of the nodes that differ, by name, and the nodes that were added.
	changed map[string]fwk.NodeInfo
	// added are the names of nodes that the cluster does not have.
	added []string
	// placed are the pods that were put on nodes, by UID. What is nominated for them no longer counts.
	placed map[types.UID]bool
	// list is the nodes as they are now; nil after a change.
	list []fwk.NodeInfo
}

// reset drops all changes.
func (n *nodes) reset() {
	n.changed, n.added, n.placed, n.list = map[string]fwk.NodeInfo{}, nil, map[types.UID]bool{}, nil
}

// nominations are those of the scheduler, without those of pods that were put on nodes: these count there.
type nominations struct {
	fwk.PodNominator
	nodes *nodes
}

// NominatedPodsForNode returns the pods that are nominated to a node and were not put on one.
func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo {
	all := n.PodNominator.NominatedPodsForNode(node)
	if len(n.nodes.placed) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(p fwk.PodInfo) bool { return n.nodes.placed[p.GetPod().UID] })
}

// NodeInfos returns n.
func (n *nodes) NodeInfos() fwk.NodeInfoLister { return n }

// Get returns a node as it is now.
func (n *nodes) Get(name string) (fwk.NodeInfo, error) {
	if changed := n.changed[name]; changed != nil {
		return changed, nil
	}
	return n.Nodes.NodeInfos().Get(name)
}

// List returns the nodes as they are now.
func (n *nodes) List() ([]fwk.NodeInfo, error) {
	if n.list != nil {
		return n.list, nil
	}
	all, err := n.Nodes.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	list := slices.Clone(all)
	for i, info := range list {
		if changed := n.changed[info.Node().Name]; changed != nil {
			list[i] = changed
		}
	}
	for _, name := range n.added {
		list = append(list, n.changed[name])
	}
	n.list = list
	return list, nil
}

// HavePodsWithAffinityList returns the nodes that have pods with affinity.
func (n *nodes) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return n.having(fwk.NodeInfo.GetPodsWithAffinity)
}

// HavePodsWithRequiredAntiAffinityList returns the nodes that have pods with required anti-affinity.
func (n *nodes) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return n.having(fwk.NodeInfo.GetPodsWithRequiredAntiAffinity)
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList returns the nodes that have pods with required anti-affinity over
// more than a node.
func (n *nodes) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return n.having(fwk.NodeInfo.GetPodsWithRequiredNonHostScopedAntiAffinity)
}

// having returns the nodes with any of the pods that a function selects.
func (n *nodes) having(pods func(fwk.NodeInfo) []fwk.PodInfo) (out []fwk.NodeInfo, err error) {
	all, err := n.List()
	for _, info := range all {
		if len(pods(info)) > 0 {
			out = append(out, info)
		}
	}
	return out, err
}

// change returns the copy of a node that may be changed.
func (n *nodes) change(name string) (fwk.NodeInfo, error) {
	info, err := n.Get(name)
	if err != nil || info.Node() == nil {
		return nil, fmt.Errorf("node %s does not exist", name)
	}
	if n.changed[name] == nil {
		info = info.Snapshot()
		n.changed[name], n.list = info, nil
	}
	return info, nil
}

// add adds a node without pods.
func (n *nodes) add(info fwk.NodeInfo) {
	name := info.Node().Name
	n.changed[name], n.added, n.list = info, append(n.added, name), nil
}
