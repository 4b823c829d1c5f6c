package ranking

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"
)

// caches are what a profile remembers from one cycle to the next.
type caches struct {
	// rankings has by what filters read of pods the *ranking, by that without amounts the *family, and by that and what
	// spreading reads the *spread.
	rankings *lru.Cache
	// kept is how many bytes these take.
	kept      int
	refusals  *lru.Cache           // key → *refusal
	nominated *lru.Cache           // as refusals, of nominated pods
	tables    []*refusal           // the last ones of which each has other statuses, the latest first
	texts     map[text]*fwk.Status // what these have in common
	// lowest is the lowest priority that runs.
	lowest priorities

	// The nodes of the snapshot, by name; they hold while the log's set of nodes is the same.
	names []string
	// ids has the index of each name.
	ids   map[string]int
	every []int32 // the indices of names
	// hashes are those of names; empty without Cycle.
	hashes []uint32
	sets   uint64
	// changedAt is one more than the last position in the log of changes that names each node, 0 for none; as of
	// followed, up to which the log was read.
	changedAt []uint64
	followed  uint64
	// places has the topologies of the nodes, for spreading.
	places topologies
}

// last is the last attempt on a pod, which ranking.Remember begins. An attempt has one or more searches for a node.
type last struct {
	attempt attempt
	refused atomic.Pointer[refusal] // of the attempt; nil unless all nodes refuse its pod. Binding cycles read it too
	// alone is the pod of the attempt if all nodes have refused it, each by itself.
	alone atomic.Pointer[corev1.Pod]
}

// search is the search for a node under way. Each one begins with the zero value.
type search struct {
	// key is what the ranking of the pod is known by; empty for a pod that is not ranked.
	key      string
	feasible []fwk.NodeInfo
	// used is the ranking that chose the node; nil if none did.
	used   *ranking
	spread *spread // beside used; nil where no spreading acts
	family *family // of the pod; nil without
}

// counts are what binding cycles or filters in parallel share with the search under way.
type counts struct {
	// rejected counts the nodes that refused the pod. With the feasible ones it says whether all nodes were asked.
	rejected atomic.Int64
	refusing atomic.Pointer[rejections] // of the pod; read by binding cycles too, for what they report
}

// scratch is memory that each evaluation writes anew.
type scratch struct {
	sums  sums // of the used ranking and its spread
	todo  []int32
	fits  []bool
	given []int64
}
