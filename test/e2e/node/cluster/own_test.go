//go:build linux && e2e_cluster

package fabricated

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// compareOwn compares what every container of the node should have with what it has. The wanted sets are computed from
// the pods' allocations and the machine alone, not by the agent's code.
func (n *node) compareOwn(ctx context.Context, pods []corev1.Pod) []string {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	want, pools := n.wanted(pods, differ)
	leaves, err := n.leaves()
	if err != nil {
		differ("%v", err)
	}
	seen := map[string]int{}
	for _, l := range leaves {
		w, known := want[l.uid]
		if !known {
			differ("a process lives in group %s of pod %s, which should be gone", l.id, l.uid)
			continue
		}
		seen[l.uid]++
		n.compareLeaf(l, w, differ)
	}
	for i := range pods {
		if p := &pods[i]; p.Status.Phase == corev1.PodRunning && seen[convert.NodeUID(p)] < 1+len(p.Spec.Containers) {
			differ("%s runs, and has %d groups with a process", title(p), seen[convert.NodeUID(p)])
		}
	}
	n.comparePools(ctx, pools, differ)
	return differences
}

// wanted is what the groups of one pod should have.
type wanted struct {
	pod  *corev1.Pod
	cpus cpuset.Set
	// mems is the list of NUMA nodes, "" where nothing is wanted of them.
	mems string
}

// pools are the shared CPUs of the node.
type pools struct{ shared, be cpuset.Set }

// wanted reckons the sets of all pods that hold CPUs, and refuses CPUs that are exclusive twice.
func (n *node) wanted(pods []corev1.Pod, differ func(string, ...any)) (map[string]wanted, pools) {
	base := n.topo.Online()
	if k := n.machine.Kubelet; k.CPU.Options["strict-cpu-reservation"] == "true" {
		base = base.Minus(n.cpus(k.CPU.Reserved))
	}
	all := pools{shared: base, be: base}
	var taken cpuset.Set
	exclusive := map[string]cpuset.Set{}
	for i := range pods {
		p := &pods[i]
		status := n.status(p, differ)
		if status.CPUSet == "" || ended(p) {
			continue
		}
		own := n.cpus(status.CPUSet)
		if twice := own.Intersect(taken); !twice.IsEmpty() {
			differ("%s has CPUs %s, which are exclusive to another pod too", title(p), n.topo.FormatList(twice))
		}
		if asked := requested(p); int64(own.Len()) != asked {
			differ("%s asked for %d CPUs and was given %s", title(p), asked, status.CPUSet)
		}
		taken = taken.Union(own)
		exclusive[convert.NodeUID(p)] = own
		all.shared = all.shared.Minus(own)
		if p.Labels[annotation.QoSClass] == "LSE" {
			all.be = all.be.Minus(own)
		}
	}
	want := map[string]wanted{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName != n.name || ended(p) {
			continue
		}
		w := wanted{pod: p, cpus: all.shared}
		status := n.status(p, differ)
		class := p.Labels[annotation.QoSClass]
		switch own, binds := exclusive[convert.NodeUID(p)]; {
		case binds:
			w.cpus = own
		case class == "LSE" || class == "LSR":
			differ("%s was bound without CPUs", title(p))
		case class == "BE", class == "" && p.Status.QOSClass == corev1.PodQOSBestEffort:
			w.cpus = all.be
		case len(status.CPUSharedPools) > 0:
			if within := all.shared.Intersect(n.onNodes(status)); !within.IsEmpty() {
				w.cpus = within
			}
		}
		w.mems = n.memoryNodes(status)
		want[convert.NodeUID(p)] = w
	}
	return want, all
}

func (n *node) status(p *corev1.Pod, differ func(string, ...any)) annotation.ResourceStatus {
	text := p.Annotations[annotation.ResourceStatusKey]
	if text == "" {
		return annotation.ResourceStatus{}
	}
	status, _, err := annotation.ParseResourceStatus(text)
	if err != nil {
		differ("%s: %v", title(p), err)
	}
	return status
}

// memoryNodes are the NUMA nodes that a pod's memory was allocated on, where no memory manager decides about them.
func (n *node) memoryNodes(status annotation.ResourceStatus) string {
	if n.machine.Kubelet.Memory.Policy == annotation.KubeletMemoryStatic {
		return ""
	}
	var ids []int
	for _, r := range status.NUMANodeResources {
		if q, ok := r.Resources[corev1.ResourceMemory]; ok && !q.IsZero() {
			ids = append(ids, int(r.Node))
		}
	}
	return cpuset.FormatIDs(sorted(ids))
}

func (n *node) onNodes(status annotation.ResourceStatus) cpuset.Set {
	var ids []int
	for _, pool := range status.CPUSharedPools {
		for _, c := range n.machine.Spec().CPUs {
			if c.NUMA == int(pool.Node) {
				ids = append(ids, c.ID)
			}
		}
	}
	return n.cpus(cpuset.FormatIDs(sorted(ids)))
}

// cpus reads a list; an empty one is the empty set.
func (n *node) cpus(list string) cpuset.Set {
	set, unknown, err := n.topo.ParseList(list)
	if err != nil || len(unknown) > 0 {
		panic(fmt.Sprintf("CPUs %q: %v, unknown %v", list, err, unknown))
	}
	return set
}

// compareLeaf compares one group: what was set in the runtime, what the kernel has, and what its processes may use.
func (n *node) compareLeaf(l leaf, w wanted, differ func(string, ...any)) {
	virtual := l.virtual.CPUs
	if virtual == "" {
		virtual = n.tree.all
	}
	if got := n.cpus(virtual); got != w.cpus {
		differ("%s, group %.8s: has CPUs %s, want %s (%s); set by %s", title(w.pod), l.id, virtual,
			n.topo.FormatList(w.cpus),
			w.pod.Annotations[annotation.ResourceStatusKey], history(l.log))
		return
	}
	if w.mems != "" && l.virtual.Mems != w.mems && !isSandbox(l) {
		differ("%s, group %.8s: has memory nodes %q, want %s", title(w.pod), l.id, l.virtual.Mems, w.mems)
	}
	folded, err := fold.CPUs(virtual, n.w.real)
	if err != nil || folded != l.kernel {
		differ("%s, group %.8s: the kernel has %s, want %s for %s (%v)", title(w.pod), l.id, l.kernel, folded, virtual,
			err)
	}
	for _, allowed := range l.allowed {
		if !subset(allowed, folded) {
			differ("%s, group %.8s: a process may use CPUs %s, want no more than %s", title(w.pod), l.id, allowed,
				folded)
		}
	}
}

// isSandbox: memory nodes are set at creation, and no component sets those of a sandbox.
func isSandbox(l leaf) bool {
	return len(l.log) == 0 || l.log[0].By == "runc create" && l.log[0].Set == (fold.Set{})
}

func subset(list, whole string) bool {
	small, err := fold.Parse(list)
	large, err2 := fold.Parse(whole)
	if err != nil || err2 != nil {
		return false
	}
	return !slices.ContainsFunc(small, func(id int) bool { return !slices.Contains(large, id) })
}

func history(log []fold.Entry) string {
	var lines []string
	for _, e := range log {
		lines = append(lines, fmt.Sprintf("%s %q", e.By, e.CPUs))
	}
	return strings.Join(lines, ", ")
}

// comparePools compares what the agent publishes of the shared pools.
func (n *node) comparePools(ctx context.Context, want pools, differ func(string, ...any)) {
	keys, err := n.published(ctx)
	if err != nil {
		differ("%v", err)
		return
	}
	for key, set := range map[string]cpuset.Set{
		annotation.CPUSharedPoolsKey:   want.shared,
		annotation.BECPUSharedPoolsKey: want.be,
	} {
		var list annotation.CPUSharedPools
		if err := json.Unmarshal([]byte(keys[key]), &list); err != nil {
			differ("%s: %v", key, err)
			continue
		}
		var got cpuset.Set
		for _, pool := range list {
			got = got.Union(n.cpus(pool.CPUSet))
		}
		if got != set {
			differ("published %s: %s, want %s", key, n.topo.FormatList(got), n.topo.FormatList(set))
		}
	}
}

// requested is what a pod's containers ask for together, in whole CPUs; init containers that end ask for less in these
// tests.
func requested(p *corev1.Pod) int64 {
	milli := int64(0)
	for i := range p.Spec.Containers {
		milli += p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	return milli / 1000
}
