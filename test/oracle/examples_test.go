//go:build oracle

package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// even is a machine of equal nodes with dense ids; siblings are far apart: CPU n and n + number of cores.
func even(nodes, cores, threads int) Machine {
	m := Machine{
		Sockets: nodes, CPUPolicy: "static", MemoryPolicy: "None", TopologyPolicy: "best-effort",
		TopologyScope: "container", CPUOptions: map[string]string{},
	}
	for i := range nodes {
		n := NUMA{ID: i, Memory: gib}
		for j := range nodes {
			n.Distances = append(n.Distances, 10+uint64(min(1, max(i-j, j-i))*10))
		}
		for c := range cores {
			k := Core{ID: i*cores + c, Socket: i, L3: -1}
			for t := range threads {
				k.Threads = append(k.Threads, t*nodes*cores+k.ID)
			}
			n.Cores = append(n.Cores, k)
		}
		m.NUMA = append(m.NUMA, n)
	}
	return m
}

func asking(uid string, cpus int64, devices map[string]int64) Step {
	return Step{Admit: &Pod{UID: uid, Guaranteed: true, Containers: []Container{
		{Name: "c", Role: RoleApp, CPU: cpus * 1000, Memory: map[string]int64{"memory": mib}, Devices: devices},
	}}}
}

// olderMinors are those before 1.36.
var olderMinors = []string{"1.33", "1.34", "1.35"}

// example is a case whose answer by the kubelet is known by hand: it tests the programs themselves.
type example struct {
	machine func() Machine
	steps   []Step
	want    string   // of the last step: the reason, or mask, preferred, CPUs; "hangs", "panics", "does not start"
	old     string   // of kubelets below 1.36, when it differs
	refused why.Code // for which our model refuses the machine
}

var examples = map[string]example{
	"two nodes with one GPU each cannot hold two GPUs preferred": {
		machine: func() Machine {
			m := even(2, 4, 1)
			m.ReservedIDs = "0"
			m.Devices = []Device{
				{Resource: "nvidia.com/gpu", ID: "a", Nodes: []int{0}},
				{Resource: "nvidia.com/gpu", ID: "b", Nodes: []int{1}},
			}
			return m
		},
		steps: []Step{asking("a", 1, map[string]int64{"nvidia.com/gpu": 2})},
		want:  "[0 1] false 1", // the mask takes both nodes, the CPU comes from the lower one
	},
	"a GPU on the last node draws the mask there since 1.36": {
		machine: func() Machine {
			m := even(4, 4, 1)
			m.ReservedIDs = "0"
			m.Devices = []Device{{Resource: "nvidia.com/gpu", ID: "a", Nodes: []int{3}}}
			return m
		},
		steps: []Step{asking("a", 7, map[string]int64{"nvidia.com/gpu": 1})},
		want:  "[3] false 1-3,12-15",
		old:   "[0 1] false 1-7",
	},
	"reserved CPUs count as capacity, so a pod of a node's size is refused for ever": {
		machine: func() Machine {
			m := even(2, 16, 1)
			m.ReservedIDs, m.TopologyPolicy = "0,16", "restricted"
			return m
		},
		steps: []Step{asking("a", 16, nil)},
		want:  "TopologyAffinityError",
	},
	"a half used low core blocks the L3 step": {
		machine: func() Machine {
			m := even(1, 8, 2)
			for i := range m.NUMA[0].Cores {
				m.NUMA[0].Cores[i].Threads = []int{2 * i, 2*i + 1}
				m.NUMA[0].Cores[i].L3 = i / 4
			}
			m.ReservedIDs, m.TopologyPolicy = "1,9,15", "none"
			m.CPUOptions["prefer-align-cpus-by-uncorecache"] = "true"
			return m
		},
		steps: []Step{asking("a", 4, nil)},
		want:  "[] false 2-5",
	},
	"on a hybrid machine a reserved thread is given away": {
		machine: func() Machine {
			m := even(1, 6, 2)
			next := 0
			for i := range m.NUMA[0].Cores {
				k := &m.NUMA[0].Cores[i]
				k.Threads = []int{next, next + 1}
				next += 2
				if i >= 2 {
					k.Threads = []int{next - 2}
					next--
				}
			}
			m.ReservedIDs, m.TopologyPolicy = "0", "none"
			return m
		},
		steps: []Step{asking("a", 2, nil)},
		want:  "[] false 0-1",
	},
	"distributed allocation keeps the combination that was visited last": {
		machine: func() Machine {
			m := even(8, 8, 1)
			m.ReservedIDs, m.TopologyPolicy = "0", "none"
			m.CPUOptions["distribute-cpus-across-numa"] = "true"
			return m
		},
		steps: []Step{asking("a", 32, nil)},
		want:  "[] false 8-31,56-63",
	},
	"distributed allocation of whole cores never ends on odd free counts": {
		machine: func() Machine {
			m := even(4, 8, 2)
			m.ReservedIDs, m.TopologyPolicy = "0,8,16,24", "none"
			m.CPUOptions["distribute-cpus-across-numa"], m.CPUOptions["full-pcpus-only"] = "true", "true"
			return m
		},
		steps: []Step{asking("a", 54, nil)},
		want:  "hangs",
	},
	"sparse node ids and distances end the kubelet": {
		machine: func() Machine {
			m := even(2, 4, 1)
			m.NUMA[1].ID = 8
			m.ReservedIDs, m.TopologyOptions = "0", map[string]string{"prefer-closest-numa-nodes": "true"}
			return m
		},
		steps:   []Step{asking("a", 1, nil)},
		want:    "panics",
		refused: why.KubeletPanics,
	},
	"a node id of 64 and more ends the kubelet": {
		machine: func() Machine {
			m := even(2, 4, 1)
			m.NUMA[1].ID = 252
			m.ReservedIDs = "0"
			return m
		},
		steps:   []Step{asking("a", 1, nil)},
		want:    "panics",
		refused: why.KubeletPanics,
	},
	"devices of a number of 0 count: the mask is the node of the first one": {
		machine: func() Machine {
			m := even(2, 4, 1)
			m.ReservedIDs = "0"
			m.Devices = []Device{{Resource: "nvidia.com/gpu", ID: "a", Nodes: []int{1}}}
			return m
		},
		steps: []Step{asking("a", 1, map[string]int64{"nvidia.com/gpu": 0})},
		want:  "[1] true 4",
		old:   "[0] true 1",
	},
	"no huge pages of a size that the machine does not have end the kubelet": {
		machine: func() Machine {
			m := even(2, 4, 1)
			m.ReservedIDs, m.MemoryPolicy = "0", "Static"
			m.NUMA[0].Reserved = map[string]int64{"memory": mib}
			return m
		},
		steps: []Step{{Admit: &Pod{UID: "a", Guaranteed: true, Containers: []Container{{
			Name: "c", Role: RoleApp, CPU: 1000, Memory: map[string]int64{"memory": mib, "hugepages-1Gi": 0},
		}}}}},
		want: "panics",
	},
	"a kubelet that cannot reserve its CPUs never serves": {
		machine: func() Machine {
			m := even(2, 2, 1)
			m.ReservedCPU, m.TopologyPolicy = 3899, "none"
			m.CPUOptions["prefer-align-cpus-by-uncorecache"] = "true"
			// Cores of one thread among others: CPUs per core are 1 on average, so the two cores with CPUs 4 and 7
			// count as four.
			first, second := [][]int{{0, 1}, {2, 3}, {4}}, [][]int{{5, 6}, {7}, {8, 9}, {10, 11}, {12, 13}}
			for i, cores := range [][][]int{first, second} {
				m.NUMA[i].Cores = nil
				for c, threads := range cores {
					m.NUMA[i].Cores = append(m.NUMA[i].Cores,
						Core{ID: 8*i + c, Socket: i, L3: 2*i + c*2/len(cores), Threads: threads})
				}
			}
			return m
		},
		want: "does not start",
	},
	"a kubelet with a topology policy does not start on nine nodes": {
		machine: func() Machine {
			m := even(9, 1, 1)
			m.ReservedIDs = "0"
			return m
		},
		want:    "does not start",
		refused: why.TooManyNUMANodes,
	},
}

func TestTheProgramsGiveKnownAnswers(t *testing.T) {
	p := &program{path: build(t, *minors), dir: t.TempDir()}
	defer p.stop()
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			m := e.machine()
			a, err := p.Ask(&Request{Start: &m})
			testkit.Check(t, err)
			for _, s := range e.steps {
				r := &Request{Delete: s.Delete}
				if s.Admit != nil {
					r.Admit = &Admission{Pod: s.Admit.object()}
				}
				if a, err = p.Ask(r); err != nil {
					t.Fatal(err)
				}
			}
			want := e.want
			if e.old != "" && slices.Contains(olderMinors, *minors) {
				want = e.old
			}
			if got := summary(a); got != want {
				t.Errorf("got %q, want %q: %s", got, want, text(a))
			}
			if e.refused != why.None {
				if _, reason, err := newModel(*minors, &m); err != nil || reason.Code != e.refused {
					t.Errorf("our model: %v, %v, want %v", reason, err, e.refused)
				}
				return
			}
			c := Case{Kubelet: *minors, Machine: m, Steps: e.steps}
			o, err := Run(&c, p, ExpectHang)
			testkit.Check(t, err)
			if o.Difference != "" || o.States == 0 && !o.NeverStarts {
				t.Errorf("our model: %d states compared, difference %s", o.States, o.Difference)
			}
		})
	}
}

// A pod whose second container has the capped merge is taken off again, and its first container's memory with it: the
// NUMA nodes that memory joined are apart again then.
func TestTheProgramsGiveKnownAnswersAfterACappedMerge(t *testing.T) {
	if slices.Contains(olderMinors, *minors) {
		t.Skip("kubelets before 1.36 merge more combinations, of every pod of the case")
	}
	text, err := os.ReadFile("testdata/capped.json")
	testkit.Check(t, err)
	c := Case{}
	testkit.Check(t, json.Unmarshal(text, &c))
	p := &program{path: build(t, *minors), dir: t.TempDir()}
	defer p.stop()
	o, err := Run(&c, p, SkipHanging)
	testkit.Check(t, err)
	if len(o.Capped) != 1 || o.States != 3 || o.Difference != "" {
		t.Errorf("%d capped merges, %d states, difference %q", len(o.Capped), o.States, o.Difference)
	}
}

// A device plugin moves the containers of a pod that is refused later. What they had joined or parted remains of them.
func TestTheProgramsGiveKnownAnswersAfterARefusedPod(t *testing.T) {
	text, err := os.ReadFile("testdata/refused.json")
	testkit.Check(t, err)
	c := Case{}
	testkit.Check(t, json.Unmarshal(text, &c))
	c.Kubelet = *minors
	p := &program{path: build(t, *minors), dir: t.TempDir()}
	defer p.stop()
	o, err := Run(&c, p, SkipHanging)
	testkit.Check(t, err)
	if o.States != 4 || o.Difference != "" {
		t.Errorf("%d states, difference %q", o.States, o.Difference)
	}
}

func summary(a *Answer) string {
	switch {
	case a.Error != "":
		return "does not start"
	case a.Hung:
		return "hangs"
	case a.Panic != "":
		return "panics"
	case !a.Admitted:
		return a.Reason
	}
	c := a.Containers[0]
	return fmt.Sprintf("%v %v %s", c.Mask, c.Preferred, c.CPUs)
}
