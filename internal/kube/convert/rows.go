package convert

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/why"
)

// IsMemory reports whether a resource is memory of NUMA nodes: ordinary memory or hugepages of some size.
func IsMemory(name corev1.ResourceName) bool { return align.HasRows(why.Resource(name)) }

// amounts reads what the zones that are NUMA nodes have for pods. Of resources that are there twice the first counts,
// as of zones. Zones are the only source of memory: where there are none, no NUMA node is known to have some or to lack
// it, and pods are aligned by their CPUs.
func (r *factReader) amounts() {
	if r.facts.Machine == nil {
		return
	}
	for _, z := range r.zones {
		for i, amount := range z.Resources {
			again := slices.ContainsFunc(z.Resources[:i],
				func(o v1alpha2.ResourceInfo) bool { return o.Name == amount.Name })
			name := why.Resource(amount.Name)
			if again || !align.HasRows(name) {
				continue
			}
			q := amount.Allocatable
			if q.Format == "" && q.IsZero() { // not set
				q = amount.Capacity
			}
			if q.Sign() < 0 {
				r.onNRT("zones["+z.Name+"].resources["+amount.Name+"]", q.String(), fmt.Errorf("want 0 or more bytes"))
				continue
			}
			if n := q.Value(); n > 0 {
				r.facts.Amounts = append(r.facts.Amounts, align.Amount{NUMAID: z.id, Resource: name, N: n})
			}
		}
	}
}

// needs is what a pod that is not bound yet asks for of each row, as the scheduler counts it, rounded up to whole
// pages. Ordinary memory comes first.
func needs(pod *corev1.Pod) []align.Need {
	var room [align.MaxRows]corev1.ResourceName
	names := room[:0]
	for _, c := range containers(pod) {
		names = rowsIn(rowsIn(names, c.Resources.Requests), c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil {
		names = rowsIn(rowsIn(names, r.Requests), r.Limits)
	}
	names = rowsIn(names, pod.Spec.Overhead)
	slices.SortFunc(names, func(a, b corev1.ResourceName) int { return cmp.Compare(b, a) })
	var out []align.Need
	for _, name := range names {
		page, _ := align.PageSize(why.Resource(name))
		if n := wholePages(page, effective(pod, name, valueOf)); n > 0 {
			out = append(out, align.Need{Resource: why.Resource(name), N: n})
		}
	}
	return out
}

func rowsIn(names []corev1.ResourceName, list corev1.ResourceList) []corev1.ResourceName {
	for name := range list {
		if IsMemory(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func wholePages(page, n int64) int64 {
	if n > math.MaxInt64-page {
		return math.MaxInt64 / page * page
	}
	return (n + page - 1) / page * page
}

// held is what a pod holds of rows: the amounts that a status puts on NUMA nodes. After a resize in place
// the pod has what it requests now on the NUMA nodes that it was given, whether or not they have it; until the resize
// is done the larger amount counts.
func held(pod *corev1.Pod, status annotation.ResourceStatus) []align.Amount {
	list := onNodes(status)
	var counted corev1.ResourceList // computed for a pod whose resize is not done
	for i := 0; i < len(list); i++ {
		name := corev1.ResourceName(list[i].Resource)
		if i > 0 && list[i-1].Resource == list[i].Resource {
			continue
		}
		n := effective(pod, name, valueOf)
		if IsResizing(pod) {
			if counted == nil {
				counted = boundRequests(pod)
			}
			q := counted[name]
			n = q.Value()
		}
		if page, _ := align.PageSize(list[i].Resource); n > 0 {
			list = align.Resize(list, list[i].Resource, wholePages(page, n))
		}
	}
	return align.Normal(list)
}

// onNodes are the amounts that a status puts on NUMA nodes.
func onNodes(status annotation.ResourceStatus) []align.Amount {
	var list []align.Amount
	for _, n := range status.NUMANodeResources {
		for name, q := range n.Resources {
			if IsMemory(name) && q.Sign() > 0 {
				list = append(list, align.Amount{NUMAID: int(n.Node), Resource: why.Resource(name), N: q.Value()})
			}
		}
	}
	return align.Normal(list)
}
