package tenancy_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const (
	card   = "vendor/card"
	others = "vendor/port"
)

// deviceNode has 8 devices of each resource on each of 2 NUMA nodes, under a kubelet that keeps pods on one.
func deviceNode(tb testing.TB, cpu kubelet.CPU) *kubelet.Node {
	tb.Helper()
	model, _ := kubelet.ModelOf("v1.36.3")
	var sets []kubelet.DeviceSet
	for _, resource := range []string{card, others} {
		for node := range topo.NUMA(2) {
			sets = append(sets, kubelet.DeviceSet{Resource: resource, Nodes: 1 << node, Registered: 8, Healthy: 8})
		}
	}
	node, reason := kubelet.NewNode(grid.Machine{Nodes: 2, Cores: 8}.Build(tb), kubelet.Config{
		Model: model, CPU: cpu, Topology: kubelet.Topology{Policy: hint.SingleNUMANode, PodScope: true},
	}, kubelet.Inventory{Devices: sets})
	if !reason.OK() {
		tb.Fatalf("NewNode: %+v", reason)
	}
	return node
}

// devicePod has a container for each number of cards.
func devicePod(uid string, cards ...int) *kubelet.Pod {
	p := &kubelet.Pod{UID: uid, Guaranteed: true}
	for i, n := range cards {
		p.Containers = append(p.Containers, kubelet.Container{
			Name: fmt.Sprint("c", i), Devices: []kubelet.Amount{{Name: card, N: int64(n)}},
		})
	}
	return p
}

// on places all devices of a pod on one NUMA node.
func on(node topo.NUMA, p *kubelet.Pod) (all kubelet.Placement) {
	for _, c := range p.Containers {
		g := kubelet.Given{Container: c.Name, Hint: hint.Hint{Mask: 1 << node, Preferred: true}}
		for _, ask := range c.Devices {
			g.Devices = append(g.Devices, kubelet.Devices{Resource: ask.Name, Nodes: 1 << node, Count: int(ask.N)})
		}
		all = append(all, g)
	}
	return all
}

// reports is another exporter's report of how many cards pods have on each NUMA node.
func reports(cards ...int) []tenancy.Grant {
	var g kubelet.Given
	for node, n := range cards {
		if n > 0 {
			g.Devices = append(g.Devices, kubelet.Devices{Resource: card, Nodes: 1 << node, Count: n})
		}
	}
	return []tenancy.Grant{{Placement: kubelet.Placement{g}}}
}

func deviceState(n *kubelet.Node, given []tenancy.Grant, tenants []*tenancy.Tenant) *tenancy.State {
	facts := &kubelet.Facts{Node: n, Config: n.Config(), Devices: []string{card, others}}
	return tenancy.New(tenancy.Report{Facts: facts, Given: given}, tenants)
}

// used counts the cards on each NUMA node that the state has given.
func used(s *tenancy.State) (cards [2]int) {
	for _, pl := range maps.Collect(s.Kubelet().Placements()) {
		for _, g := range pl {
			for _, d := range g.Devices {
				if d.Resource == card {
					cards[d.Nodes.First()] += d.Count
				}
			}
		}
	}
	return cards
}

func unknown(n *kubelet.Node, p *kubelet.Pod) *tenancy.Tenant {
	return tenancy.NewTenant(n.Machine(), p.UID, "ns", p.UID, &tenancy.Guest{Pod: p, Created: 1})
}

func predicted(n *kubelet.Node, created int64, node topo.NUMA, p *kubelet.Pod) *tenancy.Tenant {
	t := tenantOf(n, p, 0, on(node, p))
	t.Created = created
	return t
}

func TestPodsWithoutPlacementHaveTheDevicesThatAnotherExporterReports(t *testing.T) {
	t.Parallel()
	n, static := deviceNode(t, kubelet.CPU{}), deviceNode(t, kubelet.CPU{Static: true})
	starts := devicePod("a", 2, 3)
	starts.Containers[0].Role = kubelet.Init
	ported := devicePod("b", 1)
	ported.Containers[0].Devices = append(ported.Containers[0].Devices, kubelet.Amount{Name: others, N: 2})
	pinned := devicePod("b", 1)
	pinned.Containers[0].CPUs = 2
	for name, c := range map[string]struct {
		report  []tenancy.Grant
		tenants []*tenancy.Tenant
		want    [2]int
		node    *kubelet.Node // n if nil
	}{
		"one on each NUMA node": {
			reports(1, 1),
			[]*tenancy.Tenant{unknown(n, devicePod("a", 1)), unknown(n, devicePod("b", 1))},
			[2]int{1, 1},
			nil,
		},
		"no report of devices: the kubelet's model places them": {
			nil, []*tenancy.Tenant{unknown(n, devicePod("a", 1)), unknown(n, devicePod("b", 1))}, [2]int{2, 0}, nil,
		},
		"all on the second": {reports(0, 5), []*tenancy.Tenant{unknown(n, devicePod("a", 2, 3))}, [2]int{0, 5}, nil},
		"of several NUMA nodes that suffice, the one with the fewest": {
			reports(4, 2), []*tenancy.Tenant{unknown(n, devicePod("a", 2))}, [2]int{0, 2}, nil,
		},
		"more than one NUMA node has": {
			reports(2, 3), []*tenancy.Tenant{unknown(n, devicePod("a", 5))}, [2]int{2, 3}, nil,
		},
		"more than the report has": {
			reports(0, 1), []*tenancy.Tenant{unknown(n, devicePod("a", 2))}, [2]int{2, 0}, nil,
		},
		"a pod that does not fit the model": {
			reports(5, 5), []*tenancy.Tenant{unknown(n, devicePod("a", 5, 5))}, [2]int{5, 5}, nil,
		},
		"those of a pod with a placement are its own": {
			reports(1, 1),
			[]*tenancy.Tenant{predicted(n, 2, 0, devicePod("a", 1)), unknown(n, devicePod("b", 1))},
			[2]int{1, 1},
			nil,
		},
		"a pod that the report does not have yet": {
			reports(0, 2),
			[]*tenancy.Tenant{predicted(n, 2, 1, devicePod("a", 2)), unknown(n, devicePod("b", 2))},
			[2]int{0, 4},
			nil,
		},
		"the newest is the one that it does not have": {
			reports(3, 3), []*tenancy.Tenant{
				predicted(n, 2, 0, devicePod("a", 3)), predicted(n, 0, 1, devicePod("b", 3)),
				unknown(n, devicePod("c", 3)),
			}, [2]int{3, 6}, nil,
		},
		"a report of pods that have gone holds nothing": {
			reports(4, 4), []*tenancy.Tenant{unknown(n, devicePod("a", 4))}, [2]int{4, 0}, nil,
		},
		"init containers that have ended have nothing": {
			reports(0, 3), []*tenancy.Tenant{unknown(n, starts)}, [2]int{0, 3}, nil,
		},
		"predicted init containers": {
			reports(0, 4),
			[]*tenancy.Tenant{predicted(n, 2, 1, starts), unknown(n, devicePod("b", 1))},
			[2]int{0, 6},
			nil, // the prediction has 2 of the init container, which its other container takes over
		},
		"other resources are as the model has them": {
			reports(0, 1), []*tenancy.Tenant{unknown(n, ported)}, [2]int{0, 1}, nil,
		},
		"CPUs are, too": {reports(0, 1), []*tenancy.Tenant{unknown(static, pinned)}, [2]int{0, 1}, static},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := c.node
			if node == nil {
				node = n
			}
			s := deviceState(node, c.report, c.tenants)
			if got := used(s); got != c.want {
				t.Errorf("pods have %v cards, want %v", got, c.want)
			}
			for _, a := range s.Assignments() {
				ports := slices.ContainsFunc(a.Placement, func(g kubelet.Given) bool {
					return slices.ContainsFunc(g.Devices, func(d kubelet.Devices) bool { return d.Resource == others })
				})
				if a.Refused || ports != (name == "other resources are as the model has them") {
					t.Errorf("%s: refused %t, has %+v", a.UID, a.Refused, a.Placement)
				}
				if cpus := a.Placement.CPUs(); a.Pod.CPUs() != cpus.Len() {
					t.Errorf("%s has the CPUs %s", a.UID, cpuset.FormatIDs(cpus.Slice()))
				}
			}
		})
	}
}

// TestAPodIsPinnedWhereTheReportHasItsDevices: where it has too few, the model alone says what the pod has.
func TestAPodIsPinnedWhereTheReportHasItsDevices(t *testing.T) {
	t.Parallel()
	n := deviceNode(t, kubelet.CPU{})
	for cards, want := range map[int]tenancy.Source{1: tenancy.Computed, 2: tenancy.Pinned, 3: tenancy.Pinned} {
		s := deviceState(n, reports(0, cards), []*tenancy.Tenant{unknown(n, devicePod("a", 2))})
		if got := s.Assignments()[0].Source; got != want {
			t.Errorf("a report of %d cards: %v, want %v", cards, got, want)
		}
	}
}

// TestDevicesOfAnotherExporterAreCountedOnce: whatever pods the scheduler knows, what is free on each NUMA node is what
// the report has as available, without what newer pods took; and a pod that leaves frees as much as it had.
func TestDevicesOfAnotherExporterAreCountedOnce(t *testing.T) {
	t.Parallel()
	node := deviceNode(t, kubelet.CPU{})
	rapid.Check(t, func(t *rapid.T) {
		var tenants []*tenancy.Tenant
		var report, truth [2]int
		older := rapid.IntRange(0, 6).Draw(t, "pods in the report")
		for i := range older + rapid.IntRange(0, 2).Draw(t, "newer pods") {
			n, at := rapid.IntRange(1, 3).Draw(t, "cards"), topo.NUMA(rapid.IntRange(0, 1).Draw(t, "NUMA node"))
			if truth[at]+n > 8 {
				continue
			}
			p := devicePod(fmt.Sprint("pod-", i), n)
			truth[at] += n
			if i < older {
				report[at] += n
			}
			if i >= older || rapid.Bool().Draw(t, "is predicted") {
				tenants = append(tenants, predicted(node, int64(i+1), at, p))
			} else {
				tenants = append(tenants, unknown(node, p))
			}
		}
		given := reports(report[0], report[1])
		if got := used(deviceState(node, given, tenants)); got != truth {
			t.Fatalf("report %v, pods %+v: have %v, want %v", report, tenants, got, truth)
		}
		if len(tenants) == 0 {
			return
		}
		leaves := rapid.IntRange(0, len(tenants)-1).Draw(t, "leaves")
		cards := int(tenants[leaves].Pod.Containers[0].Devices[0].N)
		got := used(deviceState(node, given, slices.Delete(slices.Clone(tenants), leaves, leaves+1)))
		if sum := truth[0] + truth[1]; got[0]+got[1] != sum-cards {
			t.Fatalf("without %s pods have %v of %v", tenants[leaves].UID, got, truth)
		}
		before := deviceState(node, given, tenants)
		before.Unattributed = true // as the ledger says of such a report
		if _, ok := before.Change(tenants[leaves], nil); ok {
			t.Fatal("a change of one pod is computed alone, although others may have its devices")
		}
	})
}
