package nodenumaresource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// On a SingleNUMANode node only CPUs of one NUMA node help: two victims on different ones do not.
func TestPreemptionSeesWhereVictimsFreeTheirCPUs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode"))
	// NUMA 0 is CPUs 0-3,8-11, NUMA 1 is 4-7,12-15.
	victims := map[string]*corev1.Pod{
		"left":   lsr("left", 4, bound("n", "0-1,8-9")),
		"right":  lsr("right", 4, bound("n", "4-5,12-13")),
		"right2": lsr("right2", 2, bound("n", "6,14")),
	}
	for _, v := range victims {
		f.store.PutPod(v)
	}
	pod := lsr("p", 6)
	tests := map[string]struct {
		remove []string
		fits   bool
	}{
		"no victims":                             {nil, false},
		"the only one on the first NUMA node":    {[]string{"left"}, true},
		"enough CPUs in sum, on both NUMA nodes": {[]string{"right2"}, false},
		"both on the second NUMA node":           {[]string{"right", "right2"}, true},
		"the large one on the second NUMA node":  {[]string{"right"}, true},
		"more than is needed":                    {[]string{"left", "right2"}, true},
	}
	cs, _ := f.preFilter(t, pod)
	before := f.store.View("n")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dry := cs.Clone()
			for _, v := range tc.remove {
				if s := f.RemovePod(t.Context(), dry, pod, podInfo(t, victims[v]), n); !s.IsSuccess() {
					t.Fatal(s.Message())
				}
			}
			if got := f.Filter(t.Context(), dry, pod, n); got.IsSuccess() != tc.fits {
				t.Errorf("without %v: got %q, want fits = %t", tc.remove, verdict(got), tc.fits)
			}
			for _, v := range tc.remove { // sparing them again restores the refusal
				if s := f.AddPod(t.Context(), dry, pod, podInfo(t, victims[v]), n); !s.IsSuccess() {
					t.Fatal(s.Message())
				}
			}
			if got := f.Filter(t.Context(), dry, pod, n); got.IsSuccess() {
				t.Error("with all victims spared the pod must be refused again")
			}
		})
	}
	if f.store.View("n") != before {
		t.Error("a dry run must not touch the live account")
	}
	if got := f.Filter(t.Context(), cs, pod, n); got.IsSuccess() {
		t.Error("a dry run must not touch the cycle that it was cloned from")
	}
}

func TestNominatedPodKeepsItsRoom(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		held string // CPUs of a victim that still terminates
		n    int    // CPUs that the other pod asks for
		fits bool
	}{
		"room for both":                                        {"", 4, true},
		"room for one of them":                                 {"", 10, false},
		"the nominated pod waits for its victim":               {"0-5,8-13", 2, false},
		"and no pod may take what is free beside it meanwhile": {"0-6,8-14", 1, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, `{"minSharedCPUs":0}`)
			n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
			if tc.held != "" {
				f.store.PutPod(lsr("victim", 2, bound("n", tc.held)))
			}
			pod := lsr("p", tc.n)
			cs, _ := f.preFilter(t, pod)
			dry := cs.Clone()
			if s := f.AddPod(t.Context(), dry, pod, podInfo(t, lsr("nominated", 8)), n); !s.IsSuccess() {
				t.Fatal(s.Message())
			}
			if got := f.Filter(t.Context(), dry, pod, n); got.IsSuccess() != tc.fits {
				t.Errorf("got %q, want fits = %t", verdict(got), tc.fits)
			}
		})
	}
}

// Filter counts nominated pods, and so must Reserve: of two NUMA nodes that would do it takes the one that leaves a
// preemptor what it was promised. What a kubelet will choose does not depend on pods that it does not know.
func TestReserveLeavesANominatedPodItsNUMANode(t *testing.T) {
	t.Parallel()
	single := labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")
	tests := map[string]struct {
		option    nodeOption
		nominated *corev1.Pod
		priority  int32
		want      string
	}{
		"none":                              {single, nil, 0, "0-1,8-9"},
		"one of higher priority":            {single, lsr("nominated", 8), 1, "4-5,12-13"},
		"one of equal priority":             {single, lsr("nominated", 8), 0, "4-5,12-13"},
		"one of lower priority":             {single, lsr("nominated", 8), -1, "0-1,8-9"},
		"the pod itself":                    {single, lsr("p", 8), 1, "0-1,8-9"},
		"one that leaves no room beside it": {single, lsr("nominated", 20), 1, "0-1,8-9"},
		"one on a node that follows":        {predicted("Follow", restricted), lsr("nominated", 4), 1, "1-2,9-10"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, `{"minSharedCPUs":0}`)
			n := f.addNode("n", machine(t, "amd64", 2, 4, 2), tt.option)
			if tt.nominated != nil {
				tt.nominated.Spec.Priority = &tt.priority
				f.nominated.byNode["n"] = []fwk.PodInfo{podInfo(t, tt.nominated)}
			}
			cs := f.reserve(t, lsr("p", 4), n)
			e := placement.Read(cs).Offer.Entry
			got := e.CPUList
			if e.Guest != nil && e.Guest.Prediction != nil {
				got = e.Guest.Prediction.Held[0].CPUList
			}
			if got != tt.want {
				t.Errorf("reserved %s, want %s", got, tt.want)
			}
		})
	}
}

// TestNominatedPodKeepsItsMemory: while its victim terminates, the free part of the memory that a nominated pod waits
// for on a NUMA node is not allocated to other pods, if a topology policy allocates memory of NUMA nodes.
func TestNominatedPodKeepsItsMemory(t *testing.T) {
	t.Parallel()
	memory := func(_ *corev1.Node, nrt *v1alpha2.NodeResourceTopology) {
		for i := range 2 {
			nrt.Zones = append(nrt.Zones, v1alpha2.Zone{
				Name: convert.ZoneName(i), Type: "Node",
				Resources: v1alpha2.ResourceInfoList{
					{
						Name: "memory", Capacity: resource.MustParse("2Gi"), Allocatable: resource.MustParse("2Gi"),
						Available: resource.MustParse("2Gi"),
					},
				},
			})
		}
	}
	for name, tc := range map[string]struct {
		policy string
		want   []align.Amount
	}{
		"a policy puts memory on nodes": {"SingleNUMANode", []align.Amount{
			{NUMAID: 0, Resource: "memory", N: 2 << 30}, {NUMAID: 1, Resource: "memory", N: 2 << 30},
		}},
		"none does": {"None", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, `{"minSharedCPUs":0}`)
			n := f.addNode("n", machine(t, "amd64", 2, 4, 2), memory,
				labelled(annotation.NodeNUMATopologyPolicy, tc.policy))
			f.store.PutPod(lsr("victim", 2, bound("n", "0-5,8-13")))
			pod := lsr("p", 1)
			cs, _ := f.preFilter(t, pod)
			dry := cs.Clone()
			if s := f.AddPod(t.Context(), dry, pod, podInfo(t, lsr("nominated", 8)), n); !s.IsSuccess() {
				t.Fatal(s.Message())
			}
			s := placement.Read(dry)
			if s == nil {
				t.Fatal("the cycle has no state")
			}
			held, _ := s.View("n").Entry("nominated")
			if diff := cmp.Diff(tc.want, held.Amounts); diff != "" {
				t.Errorf("memory of the nominated pod (-want +got):\n%s", diff)
			}
		})
	}
}
