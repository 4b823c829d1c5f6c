package why_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/why"
)

// nodes returns findings of n nodes with the given reasons each.
func nodes(prefix string, n int, reasons ...why.Reason) []why.Finding {
	var findings []why.Finding
	for i := range n {
		for _, r := range reasons {
			findings = append(findings, why.Finding{
				Reason: r, Plugin: r.Code.Entry().Plugin, Phase: why.Filter,
				Object: fmt.Sprintf("%s-%d", prefix, i),
			})
		}
	}
	return findings
}

func short(code why.Code, free, asked int64) why.Reason {
	return why.Reason{Code: code, Resource: why.CPU, Unit: why.CPUs, Asked: asked, Free: free}
}

func plain(code why.Code) why.Reason { return why.Reason{Code: code} }

func once(code why.Code, phase why.Phase, detail string) why.Finding {
	return why.Finding{Reason: plain(code), Phase: phase, Detail: detail}
}

func preempting(findings []why.Finding) []why.Finding {
	for i := range findings {
		findings[i].Phase = why.Preemption
	}
	return findings
}

func TestRoot(t *testing.T) {
	t.Parallel()
	smt := why.Reason{Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: 3, Extra: 2}
	tests := map[string]struct {
		findings []why.Finding
		code     why.Code
		nodes    int
		example  string
	}{
		"80 nodes by alignment, 18 by capacity: the larger set": {
			findings: slices.Concat(nodes("a", 80, smt), nodes("b", 18, short(why.InsufficientCPU, 1, 3))),
			code:     why.SMTAlignment, nodes: 80, example: "a-0",
		},
		"two codes at once lose to one code alone": {
			findings: slices.Concat(
				nodes("a", 3, short(why.InsufficientExclusiveCPU, 0, 1), short(why.TopologyPolicy, 0, 1)),
				nodes("b", 10, short(why.InsufficientCPU, 1, 2))),
			code: why.InsufficientCPU, nodes: 10, example: "b-0",
		},
		"nodes without any GPU say nothing beside one that lacks some": {
			findings: slices.Concat(nodes("a", 4, plain(why.DeviceMissing)),
				nodes("b", 3, why.Reason{Code: why.InsufficientExtended, Unit: why.Count, Asked: 8}),
				nodes("c", 1, why.Reason{Code: why.InsufficientDevices, Unit: why.Count, Asked: 8, Free: 3})),
			code: why.InsufficientDevices, nodes: 1, example: "c-0",
		},
		"an extended resource that is in use, beside nodes without it": {
			findings: slices.Concat(
				nodes("a", 4, why.Reason{Code: why.InsufficientExtended, Unit: why.Count, Asked: 8}),
				nodes("b", 1, why.Reason{Code: why.InsufficientExtended, Asked: 8, Free: 1, Extra: 8})),
			code: why.InsufficientExtended, nodes: 5, example: "b-0",
		},
		"no node has a GPU": {
			findings: nodes("a", 4, plain(why.DeviceMissing)), code: why.DeviceMissing, nodes: 4, example: "a-0",
		},
		"no node has a GPU, and a policy refuses the rest of the pod": {
			findings: slices.Concat(nodes("a", 4, plain(why.DeviceMissing), plain(why.BindPolicyConflict)),
				nodes("b", 5, why.Reason{Code: why.InsufficientExtended, Unit: why.Count, Asked: 8},
					short(why.TopologyPolicy, 1, 2))),
			code: why.InsufficientExtended, nodes: 5, example: "b-0",
		},
		"no node has a GPU that is known, because no agent reports what nodes have": {
			findings: nodes("a", 4, plain(why.DeviceMissing), plain(why.TopologyMissing)),
			code:     why.TopologyMissing, nodes: 4, example: "a-0",
		},
		"what no pod that ends resolves, beside what one does": {
			findings: nodes("a", 2, short(why.InsufficientDevices, 1, 2), smt),
			code:     why.SMTAlignment, nodes: 2, example: "a-0",
		},
		"nodes that a selector excludes say nothing; the smallest shortfall is the root": {
			findings: slices.Concat(nodes("a", 96, plain(why.NodeAffinity)),
				nodes("b", 1, short(why.InsufficientExclusiveCPU, 7, 8)),
				nodes("c", 1, short(why.SharedPoolTooSmall, 0, 1))),
			code: why.InsufficientExclusiveCPU, nodes: 1, example: "b-0",
		},
		"what is asked once per pod comes before any node": {
			findings: append(nodes("a", 98, plain(why.NodeAffinity)),
				once(why.SchedulingGate, why.PreEnqueue, "gate foo")),
			code: why.SchedulingGate,
		},
		"of the codes asked once the lowest class": {
			findings: []why.Finding{
				once(why.SchedulingGate, why.PreEnqueue, ""),
				once(why.BadAnnotation, why.PreFilter, ""),
			},
			code: why.BadAnnotation,
		},
		"what one node of many requires of the pod is not a cause for all of them": {
			findings: slices.Concat(nodes("a", 9, short(why.InsufficientExclusiveCPU, 1, 2)),
				nodes("b", 1, plain(why.CPURequestNotInteger))),
			code: why.InsufficientExclusiveCPU, nodes: 9, example: "a-0",
		},
		"a pod that selects one node, which is cordoned": {
			findings: slices.Concat(nodes("a", 3, plain(why.NodeAffinity)),
				nodes("b", 1, plain(why.NodeUnschedulable))),
			code: why.NodeUnschedulable, nodes: 1, example: "b-0",
		},
		"a pod that selects no node": {
			findings: nodes("a", 3, plain(why.NodeAffinity), plain(why.TaintToleration)), code: why.NodeAffinity,
			nodes: 3, example: "a-0",
		},
		"rules alone on the nodes that it selects: the one with most nodes of these": {
			findings: slices.Concat(nodes("a", 3, plain(why.TaintToleration)),
				nodes("b", 5, plain(why.NodeAffinity), plain(why.NodePorts)),
				nodes("c", 2, plain(why.NodePorts))),
			code: why.TaintToleration, nodes: 3, example: "a-0",
		},
		"a pool at its floor on a node with too few CPUs is one cause": {
			findings: slices.Concat(nodes("a", 3, short(why.SharedPoolFloor, 1, 4), short(why.InsufficientCPU, 1, 4)),
				nodes("b", 2, short(why.InsufficientMemory, 1, 4))),
			code: why.InsufficientCPU, nodes: 3, example: "a-0",
		},
		"a node that a selector excludes too does not count for capacity": {
			findings: slices.Concat(nodes("a", 9, plain(why.NodeAffinity), short(why.InsufficientCPU, 1, 2)),
				nodes("b", 1, smt)),
			code: why.SMTAlignment, nodes: 1, example: "b-0",
		},
		"of one set the member of the lowest class": {
			findings: nodes("a", 4, short(why.InsufficientCPU, 1, 2), smt),
			code:     why.SMTAlignment, nodes: 4, example: "a-0",
		},
		"the example is the node that came closest": {
			findings: slices.Concat(nodes("a", 3, short(why.InsufficientCPU, 1, 8)),
				nodes("z", 1, short(why.InsufficientCPU, 7, 8))),
			code: why.InsufficientCPU, nodes: 4, example: "z-0",
		},
		"preemption never replaces a filter": {
			findings: slices.Concat(nodes("a", 1, short(why.InsufficientCPU, 1, 2)),
				preempting(nodes("a", 50, plain(why.NoVictims)))),
			code: why.InsufficientCPU, nodes: 1, example: "a-0",
		},
		"preemption alone is reported": {
			findings: preempting(nodes("a", 2, plain(why.VictimsTerminating))), code: why.VictimsTerminating, nodes: 2,
			example: "a-0",
		},
		"nothing refused": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := why.Root(test.findings)
			if got.Code != test.code || got.Nodes != test.nodes || got.Object != test.example {
				t.Errorf("got %v on %d nodes (%q), want %v on %d (%q)", got.Code, got.Nodes, got.Object, test.code,
					test.nodes, test.example)
			}
		})
	}
}

func drawFindings(t *rapid.T) []why.Finding {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) why.Finding {
		entry := rapid.SampledFrom(why.Registry()).Draw(t, "code")
		code, _ := why.ParseCode(entry.Name)
		f := why.Finding{
			Reason: why.Reason{Code: code, Extra: int64(rapid.IntRange(0, 2).Draw(t, "extra"))},
			Plugin: entry.Plugin, Phase: rapid.SampledFrom([]why.Phase{
				why.Filter, why.Filter, why.Filter,
				why.Preemption,
			}).Draw(t, "phase"),
			Detail: rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringN(0, 400, 1600)).Draw(t, "detail"),
		}
		if entry.Amount {
			f.Resource, f.Unit = why.CPU, why.CPUs
			f.Asked = int64(rapid.IntRange(1, 4).Draw(t, "asked"))
			f.Free = int64(rapid.IntRange(0, int(f.Asked)-1).Draw(t, "free"))
		}
		if !entry.Class.OncePerPod() || code == why.CPURequestNotInteger && f.Phase == why.Filter {
			f.Object = rapid.SampledFrom([]string{"n0", "n1", "n2", "n3", "n4"}).Draw(t, "node")
		}
		return f
	}), 0, 12).Draw(t, "findings")
}

// TestOrderOfNodesDoesNotMatter is W4.
func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		findings := drawFindings(t)
		other := rapid.Permutation(findings).Draw(t, "other order")
		if a, b := why.Root(findings), why.Root(other); a != b {
			t.Fatalf("root %+v and %+v", a, b)
		}
		if diff := gocmp.Diff(why.Obstacles(findings), why.Obstacles(other)); diff != "" {
			t.Fatalf("obstacles:\n%s", diff)
		}
		if a, b := why.Message(findings, 5), why.Message(other, 5); a != b {
			t.Fatalf("messages:\n%s\n%s", a, b)
		}
		if a, b := codesOf(why.MinimalSets(findings)), codesOf(why.MinimalSets(other)); !gocmp.Equal(a, b) {
			t.Fatalf("minimal sets %v and %v", a, b)
		}
	})
}

// TestTheRootStandsBeforeMoreFrequentCauses: the others follow as Obstacles orders them, and none is lost.
func TestTheRootStandsBeforeMoreFrequentCauses(t *testing.T) {
	t.Parallel()
	cordoned := slices.Concat(nodes("a", 3, plain(why.NodeAffinity)), nodes("b", 1, plain(why.NodeUnschedulable)),
		preempting(nodes("a", 4, plain(why.NoVictims))))
	if got := why.RootFirst(cordoned)[0]; got.Code != why.NodeUnschedulable || got.Nodes != 1 {
		t.Errorf("a pod that selects a cordoned node: got %v on %d nodes first", got.Code, got.Nodes)
	}
	rapid.Check(t, func(t *rapid.T) {
		findings := drawFindings(t)
		got, want, root := why.RootFirst(findings), why.Obstacles(findings), why.Root(findings)
		if len(got) == 0 {
			if len(want) > 0 {
				t.Fatalf("got none of %+v", want)
			}
			return
		}
		if got[0].Code != root.Code || (got[0].Phase == why.Preemption) != (root.Phase == why.Preemption) {
			t.Fatalf("got %+v first, the root is %+v", got[0], root)
		}
		rest := slices.DeleteFunc(slices.Clone(want), func(o why.Obstacle) bool { return o == got[0] })
		if len(got) != len(want) || !slices.Equal(got[1:], rest) {
			t.Fatalf("after the root got\n%+v, want\n%+v", got[1:], rest)
		}
	})
}

// TestNodesThatThePodDoesNotSelectChangeNoRoot, also where all others have one code.
func TestNodesThatThePodDoesNotSelectChangeNoRoot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		findings := slices.DeleteFunc(drawFindings(t), func(f why.Finding) bool {
			return f.Object == "" || f.Phase == why.Preemption || f.Code.Class() == why.Constraint
		})
		if len(findings) == 0 {
			t.Skip("no node refuses")
		}
		if rapid.Bool().Draw(t, "one code") {
			for i := range findings {
				findings[i].Code = findings[0].Code
			}
		}
		with := append(slices.Clone(findings), nodes("unselected", 3, plain(why.NodeAffinity))...)
		if a, b := why.Root(findings), why.Root(with); a != b {
			t.Fatalf("%+v, beside nodes that are not selected %+v, of %+v", a, b, findings)
		}
	})
}

func codesOf(sets []why.Set) [][]why.Code {
	var codes [][]why.Code
	for _, s := range sets {
		codes = append(codes, s.Codes)
	}
	return codes
}

// TestMinimalSetsAreWhatMustBeLifted: lifting a set admits the pod on some node, lifting less of it on none.
func TestMinimalSetsAreWhatMustBeLifted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		findings := slices.DeleteFunc(drawFindings(t), func(f why.Finding) bool {
			// one cause with InsufficientCPU
			return f.Phase == why.Preemption || f.Object == "" || f.Code == why.SharedPoolFloor
		})
		on := map[string][]why.Code{}
		for _, f := range findings {
			on[f.Object] = append(on[f.Object], f.Code)
		}
		admits := func(lifted []why.Code) bool {
			for _, codes := range on {
				if !slices.ContainsFunc(codes, func(c why.Code) bool { return !slices.Contains(lifted, c) }) {
					return true
				}
			}
			return false
		}
		sets := why.MinimalSets(findings)
		if len(on) > 0 && len(sets) == 0 || len(sets) > 5 {
			t.Fatalf("%d nodes, %d sets", len(on), len(sets))
		}
		for _, s := range sets {
			if !admits(s.Codes) {
				t.Fatalf("lifting %v admits the pod nowhere", s.Codes)
			}
			for i := range s.Codes {
				if less := slices.Delete(slices.Clone(s.Codes), i, i+1); admits(less) {
					t.Fatalf("%v is not minimal: %v is enough", s.Codes, less)
				}
			}
			for _, missing := range s.Missing {
				if missing.Free >= missing.Asked || !slices.Contains(s.Codes, missing.Code) {
					t.Fatalf("%v misses %+v", s.Codes, missing)
				}
			}
		}
		if !slices.IsSortedFunc(sets, func(a, b why.Set) int { return cmp.Compare(b.Nodes, a.Nodes) }) {
			t.Fatalf("not sorted by nodes: %+v", sets)
		}
	})
}

// TestMakingAReasonAllocatesNothing is W7.
func TestMakingAReasonAllocatesNothing(t *testing.T) {
	if size := unsafe.Sizeof(why.Reason{}); size > 64 {
		t.Errorf("a Reason takes %d bytes, want at most 64", size)
	}
	var sink why.Reason
	free := int64(0)
	allocs := testing.AllocsPerRun(100, func() {
		sink = why.Reason{
			Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: 8, Free: free,
			Where: why.Where{Scope: why.NUMA},
		}
		free++
		if sink.OK() || sink.Code.Resolvable() != true || sink.Code.String() == "" || sink.Text() == "" {
			t.Error("unexpected reason")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func TestObstaclesCountRefusalsAlone(t *testing.T) {
	t.Parallel()
	findings := append(nodes("a", 2, why.Reason{}), nodes("a", 1, short(why.InsufficientCPU, 1, 3))...)
	got := why.Obstacles(findings)
	if len(got) != 1 || got[0].Code != why.InsufficientCPU || got[0].Nodes != 1 {
		t.Errorf("got %+v", got)
	}
	findings = append(nodes("a", 2, why.Reason{}), nodes("b", 1, plain(why.NodePorts))...)
	if sets := why.MinimalSets(findings); len(sets) != 1 {
		t.Errorf("got the sets %+v", sets)
	}
}

// TestClosest: of one code before preemption and one code of preemption each the example with the smallest shortfall
// stays.
func TestClosest(t *testing.T) {
	t.Parallel()
	far, closest := nodes("a", 1, short(why.InsufficientCPU, 1, 8))[0], nodes("b", 1, short(why.InsufficientCPU, 7, 8))[0]
	other := nodes("c", 1, plain(why.NodePorts))[0]
	late := preempting(nodes("d", 1, short(why.InsufficientCPU, 2, 8)))[0]
	var kept []why.Finding
	for _, f := range []why.Finding{far, other, closest, late, far} {
		kept = why.Closest(kept, &f)
	}
	if diff := gocmp.Diff([]why.Finding{closest, other, late}, kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOfOneSetTheNodeThatLacksLeastIsNamed, and of two that lack the same the first by name.
func TestOfOneSetTheNodeThatLacksLeastIsNamed(t *testing.T) {
	t.Parallel()
	gpus := func(free int64) why.Reason {
		return why.Reason{Code: why.InsufficientDevices, Unit: why.Count, Asked: 8, Free: free}
	}
	for name, c := range map[string]struct {
		findings []why.Finding
		want     int64
	}{
		"a nearer node after a farther one": {
			append(nodes("a", 1, gpus(1)), nodes("b", 1, gpus(6))...), 6,
		},
		"a farther node after a nearer one": {
			append(nodes("a", 1, gpus(6)), nodes("b", 1, gpus(1))...), 6,
		},
		"one that lacks as much, and comes first by name": {
			append(nodes("b", 1, short(why.InsufficientCPU, 0, 4), gpus(2)),
				nodes("a", 1, short(why.InsufficientCPU, 0, 4), gpus(5))...), 5,
		},
		"one that lacks as much, and comes last by name": {
			append(nodes("a", 1, short(why.InsufficientCPU, 0, 4), gpus(5)),
				nodes("b", 1, short(why.InsufficientCPU, 0, 4), gpus(2))...), 5,
		},
	} {
		sets := why.MinimalSets(c.findings)
		if len(sets) != 1 || sets[0].Missing[len(sets[0].Missing)-1].Free != c.want {
			t.Errorf("%s: got %+v, want %d free", name, sets, c.want)
		}
	}
}
