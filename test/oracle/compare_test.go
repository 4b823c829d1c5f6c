package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// modelProgram answers as our own model would, spelled as a program spells it. It tests the comparison, not the model.
type modelProgram struct {
	kubelet string
	*model
	machine *Machine
	used    map[string]map[string]bool // ids given, by resource
	owner   map[string][]string        // "resource id" by pod
	wrong   func(*Answer)              // spoils the answers to admissions
}

func (w *modelProgram) Ask(r *Request) (*Answer, error) {
	switch {
	case r.Start != nil:
		m, reason, err := newModel(w.kubelet, r.Start)
		if err != nil || reason.Code != why.None {
			return &Answer{Error: fmt.Sprint(reason, err)}, nil
		}
		w.model, w.machine, w.used, w.owner = m, r.Start, map[string]map[string]bool{}, map[string][]string{}
		return &Answer{Started: true, Reserved: m.reserved()}, nil
	case r.Delete != "":
		w.state = w.state.Without(r.Delete)
		w.release(r.Delete)
		return &Answer{}, nil
	case r.Restart:
		return &Answer{Started: true}, nil
	}
	a := w.admit(r.Admit.Pod)
	if w.wrong != nil {
		w.wrong(a)
	}
	return a, nil
}

func (w *modelProgram) release(uid string) {
	for _, key := range w.owner[uid] {
		resource, id, _ := strings.Cut(key, " ")
		delete(w.used[resource], id)
	}
	delete(w.owner, uid)
}

func (w *modelProgram) admit(object *corev1.Pod) *Answer {
	p, err := read(object)
	if err != nil {
		return &Answer{Error: err.Error()}
	}
	w.release(p.UID)
	a := &Answer{QoS: "Burstable"}
	if p.Guaranteed || object.Spec.Resources != nil && len(object.Spec.Resources.Limits) > 0 {
		a.QoS = "Guaranteed"
	}
	if w.trace {
		a.Hints = w.hints(p)
	}
	next, pl, refusal := w.state.Admit(p)
	w.state = next
	if refusal != nil {
		w.state = next.Without(p.UID)
		a.Reason, a.Last = refusal.Status, refusal.Container
		a.Hung = refusal.Reason.Code == why.KubeletWouldHang
		if refusal.Reason.Code == why.KubeletPanics {
			a.Panic = "nil pointer"
		}
		return a
	}
	a.Admitted = true
	for _, g := range pl {
		out := Given{
			Name: g.Container, Mask: w.ids(g.Hint.Mask), Preferred: g.Hint.Preferred,
			CPUs: w.model.machine.FormatList(g.CPUs),
		}
		for _, b := range g.Memory {
			out.Memory = append(out.Memory, Block{Type: b.Type, Nodes: w.ids(b.Nodes), Bytes: b.Bytes})
		}
		out.Devices = w.name(p.UID, g.Devices)
		a.Containers = append(a.Containers, out)
	}
	return a
}

func (w *modelProgram) hints(p *kubelet.Pod) []map[string][]Offer {
	var all []map[string][]Offer
	for _, s := range w.state.Explain(p).Steps {
		if s.Lists == nil {
			continue
		}
		merge := map[string][]Offer{}
		for _, named := range s.Lists {
			if named.List != nil {
				merge[named.Resource] = []Offer{}
			}
			for _, h := range named.List {
				merge[named.Resource] = append(merge[named.Resource],
					Offer{Mask: w.ids(h.Mask), Preferred: h.Preferred})
			}
		}
		all = append(all, merge)
	}
	return all
}

// name gives counted devices ids.
func (w *modelProgram) name(uid string, list []kubelet.Devices) map[string][]string {
	out := map[string][]string{}
	for _, d := range list {
		for _, v := range w.machine.Devices {
			mask, _ := w.mask(v.Nodes)
			if d.Count == 0 || v.Resource != d.Resource || mask != d.Nodes || v.Unhealthy || w.used[v.Resource][v.ID] {
				continue
			}
			d.Count--
			out[v.Resource] = append(out[v.Resource], v.ID)
			if w.used[v.Resource] == nil {
				w.used[v.Resource] = map[string]bool{}
			}
			w.used[v.Resource][v.ID] = true
			w.owner[uid] = append(w.owner[uid], v.Resource+" "+v.ID)
		}
	}
	return out
}

// oneOfAll is a machine and a pod that use everything that is compared: CPUs, memory, huge pages, devices, a hint.
func oneOfAll() Case {
	m := Machine{
		Trace: true, Sockets: 2, CPUPolicy: "static", ReservedIDs: "0", MemoryPolicy: "Static",
		TopologyPolicy: "best-effort", TopologyScope: "container",
		Devices: []Device{
			{Resource: "nvidia.com/gpu", ID: "a", Nodes: []int{0}},
			{Resource: "nvidia.com/gpu", ID: "b", Nodes: []int{1}},
			{Resource: "nvidia.com/gpu", ID: "c", Nodes: []int{1}},
		},
	}
	for i := range 2 {
		n := NUMA{ID: i, Memory: gib, Hugepages: map[int64]int64{2048: 16}, Distances: []uint64{10, 20}}
		if i == 1 {
			n.Distances = []uint64{20, 10}
		} else {
			n.Reserved = map[string]int64{"memory": mib}
		}
		for c := range 4 {
			n.Cores = append(n.Cores, Core{ID: 4*i + c, Socket: i, L3: i, Threads: []int{4*i + c, 8 + 4*i + c}})
		}
		m.NUMA = append(m.NUMA, n)
	}
	pod := &Pod{UID: "p", Guaranteed: true, Containers: []Container{{
		Name: "c", Role: RoleApp, CPU: 2000, Memory: map[string]int64{"memory": mib, "hugepages-2Mi": 2 * mib},
		Devices: map[string]int64{"nvidia.com/gpu": 1},
	}}}
	tooLarge := &Pod{
		UID: "q", Guaranteed: true,
		Containers: []Container{{Name: "c", Role: RoleApp, CPU: 99000, Memory: map[string]int64{"memory": mib}}},
	}
	return Case{Kubelet: "1.37", Machine: m, Steps: []Step{{Admit: pod}, {Delete: "p"}, {Admit: tooLarge}}}
}

func TestEqualAnswersAreEqual(t *testing.T) {
	t.Parallel()
	states := 0
	for i := range uint64(400) {
		c := Draw("1.37", 1, i)
		out, err := Run(&c, &modelProgram{kubelet: "1.37"}, SkipHanging)
		testkit.Check(t, err)
		// twin does not reuse devices by id, and takes a refused pod's CPUs back also where another pod has them: that
		// happens where cores differ in threads.
		if out.Difference != "" && !strings.Contains(out.Difference, "devices") && !differs(&c.Machine) {
			t.Errorf("case %d, step %d: %s", i, out.Step, out.Difference)
		}
		states += out.States
	}
	if states < 1000 {
		t.Errorf("%d states compared, want at least 1000", states)
	}
}

// differs reports whether a machine's cores differ in threads.
func differs(m *Machine) bool {
	threads := map[int]bool{}
	for _, n := range m.NUMA {
		for _, k := range n.Cores {
			threads[len(k.Threads)] = true
		}
	}
	return len(threads) > 1
}

// A comparison that finds nothing proves nothing unless it finds what is there.
func TestWrongAnswersAreFound(t *testing.T) {
	t.Parallel()
	c := oneOfAll()
	if out, err := Run(&c, &modelProgram{kubelet: "1.37"}, SkipHanging); err != nil || out.Difference != "" ||
		out.States != 2 {
		t.Fatalf("right answers: %+v, %v", out, err)
	}
	admitted := func(change func(*Given)) func(*Answer) {
		return func(a *Answer) {
			if a.Admitted {
				change(&a.Containers[0])
			}
		}
	}
	admittedAnswer := func(change func(*Answer)) func(*Answer) {
		return func(a *Answer) {
			if a.Admitted {
				change(a)
			}
		}
	}
	for name, wrong := range map[string]struct {
		spoil func(*Answer)
		found string
	}{
		"refused instead of admitted": {func(a *Answer) { a.Admitted, a.Containers = false, nil }, "verdict"},
		"admitted instead of refused": {func(a *Answer) { a.Admitted = true }, "verdict"},
		"another reason":              {func(a *Answer) { a.Reason += "!" }, "reason"},
		"another container failed":    {func(a *Answer) { a.Last += "!" }, "container"},
		"another mask":                {admitted(func(g *Given) { g.Mask = []int{1} }), "hint"},
		"a wider mask":                {admitted(func(g *Given) { g.Mask = []int{0, 1} }), "hint"},
		"not preferred":               {admitted(func(g *Given) { g.Preferred = false }), "hint"},
		"other CPUs":                  {admitted(func(g *Given) { g.CPUs = "2,10" }), "CPUs"},
		"no CPUs":                     {admitted(func(g *Given) { g.CPUs = "" }), "CPUs"},
		"memory from another node":    {admitted(func(g *Given) { g.Memory[1].Nodes = []int{1} }), "memory"},
		"a byte of memory less":       {admitted(func(g *Given) { g.Memory[1].Bytes-- }), "memory"},
		"no huge pages":               {admitted(func(g *Given) { g.Memory = g.Memory[1:] }), "memory"},
		"a device of another node": {
			admitted(func(g *Given) { g.Devices["nvidia.com/gpu"] = []string{"b"} }),
			"devices",
		},
		"a device more": {
			admitted(func(g *Given) { g.Devices["nvidia.com/gpu"] = []string{"a", "b"} }),
			"devices",
		},
		"no device": {admitted(func(g *Given) { g.Devices = nil }), "devices"},
		"a hint less": {
			admittedAnswer(func(a *Answer) { a.Hints[0]["cpu"] = a.Hints[0]["cpu"][1:] }),
			"hints of cpu",
		},
		"a hint not preferred": {
			admittedAnswer(func(a *Answer) { a.Hints[0]["memory"][0].Preferred = false }),
			"hints of memory",
		},
		"cannot for do not care": {
			admittedAnswer(func(a *Answer) { a.Hints[0]["nvidia.com/gpu"] = nil }),
			"hints of nvidia.com/gpu",
		},
		"a merge more":             {func(a *Answer) { a.Hints = append(a.Hints, nil) }, "merges"},
		"no answer":                {func(a *Answer) { a.Hung = true }, "hangs"},
		"a panic":                  {func(a *Answer) { a.Panic = "index out of range" }, "panics"},
		"another class of service": {func(a *Answer) { a.QoS = "BestEffort" }, "BestEffort"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := oneOfAll()
			out, err := Run(&c, &modelProgram{kubelet: "1.37", wrong: wrong.spoil}, SkipHanging)
			testkit.Check(t, err)
			if !strings.Contains(out.Difference, wrong.found) || len(out.Documented) > 0 {
				t.Errorf("found %q (documented %v), want a difference of %s", out.Difference, out.Documented,
					wrong.found)
			}
		})
	}
}

func TestAnUnforeseenHangIsFound(t *testing.T) {
	t.Parallel()
	c := oneOfAll()
	out, err := Run(&c, &modelProgram{kubelet: "1.37", wrong: func(a *Answer) { a.Hung = true }}, ExpectHang)
	if err != nil || out.Difference == "" {
		t.Errorf("found nothing: %+v, %v", out, err)
	}
}

func TestShrinkKeepsOnlyWhatFails(t *testing.T) {
	t.Parallel()
	// Fails while some pod of the case asks for more than two CPUs.
	failing := func(c Case) bool {
		return slices.ContainsFunc(c.Steps, func(s Step) bool {
			return s.Admit != nil && slices.ContainsFunc(s.Admit.Containers,
				func(k Container) bool { return k.CPU > 2000 })
		})
	}
	shrunk := 0
	for i := range uint64(50) {
		c := Draw("1.37", 2, i)
		if !failing(c) {
			continue
		}
		shrunk++
		small := Shrink(c, 5000, failing)
		if len(small.Steps) != 1 || len(small.Steps[0].Admit.Containers) > 2 || len(small.Machine.Devices) > 0 ||
			len(small.Machine.CPUOptions) > 0 {
			t.Errorf("case %d shrinks to %+v", i, small)
		}
		if !failing(small) {
			t.Errorf("case %d: the small case does not fail", i)
		}
	}
	if shrunk < 20 {
		t.Errorf("%d cases shrunk, want at least 20", shrunk)
	}
}

func TestEveryKnownDifferenceSaysWhy(t *testing.T) {
	t.Parallel()
	for _, d := range knownDifferences {
		if d.name == "" || len(d.reason) < 40 || d.issue == "" {
			t.Errorf("%+v: name, reason and issue are needed", d)
		}
	}
}
