package app

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestThePodsMemoryIsBoundWhereTheSchedulerPutIt goes the way of a pod: request, offer, annotation, and what the agent
// reads out of it.
func TestThePodsMemoryIsBoundWhereTheSchedulerPutIt(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Nodes: 2, Cores: 2}.Build(t)
	pages := func(numa int, kind why.Resource, gib int64) align.Amount {
		return align.Amount{NUMAID: numa, Resource: kind, N: gib << 30}
	}
	tests := map[string]struct {
		class, policy string
		memory        []align.Amount
		want          []int
	}{
		"exclusive CPUs": {
			"LSR", "SingleNUMANode",
			[]align.Amount{pages(0, "memory", 1), pages(1, "memory", 4), pages(1, "hugepages-1Gi", 2)},
			[]int{1},
		},
		"shared pools": {
			"LS", "SingleNUMANode",
			[]align.Amount{pages(0, "memory", 1), pages(1, "memory", 4), pages(1, "hugepages-1Gi", 2)},
			[]int{1},
		},
		"hugepages apart": {
			"LSR", "BestEffort",
			[]align.Amount{pages(0, "memory", 4), pages(1, "hugepages-1Gi", 2)},
			[]int{0, 1},
		},
		"no policy": {"LSR", "", []align.Amount{pages(0, "memory", 4), pages(1, "memory", 4)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := object.Pod("p", object.UID("u"), object.Class(tt.class),
				object.Annotation(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"`+tt.policy+`"}`),
				object.Both("cpu", "1", "memory", "2Gi", "hugepages-1Gi", "2Gi"))
			r, reason, detail := convert.Request(pod, convert.DefaultArgs())
			if !reason.OK() {
				t.Fatalf("refused: %v %s", reason, detail)
			}
			view := ledger.New(ledger.Facts{Machine: m, Amounts: tt.memory}).View()
			offer, reason := place.Try(view, r)
			if !reason.OK() {
				t.Fatalf("refused: %+v", reason)
			}
			pod.Spec.NodeName = "n"
			pod.Annotations[annotation.ResourceStatusKey] = annotation.Encode(convert.Status(m, view, r, offer))
			if got := desired.FromAPI(convert.ReadPod(pod)).MemoryNUMAIDs; !slices.Equal(got, tt.want) {
				t.Errorf("memory on NUMA nodes %v, want %v: %s", got, tt.want,
					pod.Annotations[annotation.ResourceStatusKey])
			}
		})
	}
}
