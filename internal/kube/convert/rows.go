package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Resources are the resources besides memory that pods hold on NUMA nodes. They must not be changed; nil is none.
type Resources struct {
	// Kinds is how core counts them and hands them out.
	Kinds align.Table
	// Units is how the API speaks of those that have units. Of others zones have an amount, and resource-status names
	// what a pod holds.
	Units map[why.Resource]Units
}

// Units reads and writes the units of one resource.
type Units interface {
	// Of returns the units that a node has.
	Of(s Sources) []align.Amount
	// HeldBy returns what a pod holds by its annotations.
	HeldBy(pod *corev1.Pod) []align.Amount
	// Record returns the annotation of a pod that holds amounts.
	Record(held []align.Amount) (key, value string)
}

func (r *Resources) table() *align.Table {
	if r == nil {
		return nil
	}
	return &r.Kinds
}

func (r *Resources) units(yield func(why.Resource, Units) bool) {
	if r != nil {
		maps.All(r.Units)(yield)
	}
}

func (r *Resources) hasUnits(resource why.Resource) bool { return r != nil && r.Units[resource] != nil }

// Records returns the annotations that say which units a pod holds.
func (r *Resources) Records(o ledger.Offer) map[string]string {
	out := map[string]string{}
	for resource, units := range r.units {
		held := slices.Clone(o.Entry.Amounts)
		held = slices.DeleteFunc(held, func(a align.Amount) bool { return a.Resource != resource })
		if len(held) > 0 {
			key, value := units.Record(held)
			out[key] = value
		}
	}
	return out
}

// IsMemory reports whether a resource is memory of NUMA nodes: ordinary memory or hugepages of some size.
func IsMemory(name corev1.ResourceName) bool { return (*align.Table)(nil).Has(why.Resource(name)) }

// amounts reads what the zones that are NUMA nodes have for pods. Of resources that are there twice the first counts,
// as of zones. Zones are the only source of memory: where there are none, no NUMA node is known to have some or to lack
// it, and pods are aligned by their CPUs.
func (r *factReader) amounts(s Sources, args Args) {
	r.facts.Table = args.Resources.table()
	if r.facts.Machine == nil {
		return
	}
	for _, units := range args.Resources.units {
		r.facts.Amounts = append(r.facts.Amounts, units.Of(s)...)
	}
	for _, z := range r.zones {
		for i, amount := range z.Resources {
			again := slices.ContainsFunc(z.Resources[:i],
				func(o v1alpha2.ResourceInfo) bool { return o.Name == amount.Name })
			name := why.Resource(amount.Name)
			if again || !r.facts.Table.Has(name) || args.Resources.hasUnits(name) {
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
func needs(pod *corev1.Pod, t *align.Table) []align.Need {
	var room [align.MaxRows]corev1.ResourceName
	names := room[:0]
	for _, c := range containers(pod) {
		names = rowsIn(t, rowsIn(t, names, c.Resources.Requests), c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil {
		names = rowsIn(t, rowsIn(t, names, r.Requests), r.Limits)
	}
	names = rowsIn(t, names, pod.Spec.Overhead)
	slices.SortFunc(names, byRow)
	var out []align.Need
	for _, name := range names {
		kind, _ := t.Kind(why.Resource(name))
		if n := wholePages(kind.Page, effective(pod, name, valueOf)); n > 0 {
			out = append(out, align.Need{Resource: kind.Resource, N: n})
		}
	}
	return out
}

// byRow orders ordinary memory before hugepages and these before other resources.
func byRow(a, b corev1.ResourceName) int {
	if memory := IsMemory(a); memory != IsMemory(b) {
		if memory {
			return -1
		}
		return 1
	}
	return cmp.Compare(b, a)
}

func rowsIn(t *align.Table, names []corev1.ResourceName, list corev1.ResourceList) []corev1.ResourceName {
	for name := range list {
		if t.Has(why.Resource(name)) && !slices.Contains(names, name) {
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

// held is what a pod holds of rows: the amounts that a status puts on NUMA nodes, and units. After a resize in place
// the pod has what it requests now on the NUMA nodes that it was given, whether or not they have it; until the resize
// is done the larger amount counts.
func held(pod *corev1.Pod, status annotation.ResourceStatus, r *Resources) []align.Amount {
	list := onNodes(status, r)
	var counted corev1.ResourceList // computed for a pod whose resize is not done
	for i := 0; i < len(list); i++ {
		name := corev1.ResourceName(list[i].Resource)
		if i > 0 && list[i-1].Resource == list[i].Resource || !IsMemory(name) {
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
		if kind, _ := r.table().Kind(list[i].Resource); n > 0 {
			list = align.Resize(list, kind.Resource, wholePages(kind.Page, n))
		}
	}
	for _, units := range r.units {
		list = append(list, units.HeldBy(pod)...)
	}
	return align.Normal(list)
}

// onNodes are the amounts that a status puts on NUMA nodes.
func onNodes(status annotation.ResourceStatus, r *Resources) []align.Amount {
	var list []align.Amount
	for _, n := range status.NUMANodeResources {
		for name, q := range n.Resources {
			if r.table().Has(why.Resource(name)) && q.Sign() > 0 {
				list = append(list, align.Amount{NUMAID: int(n.Node), Resource: why.Resource(name), N: q.Value()})
			}
		}
	}
	return align.Normal(list)
}
