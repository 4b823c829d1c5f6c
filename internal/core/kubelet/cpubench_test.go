package kubelet

import (
	"math/rand/v2"
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// BenchmarkTake chooses CPU ids on a machine in use. The kubelet's packed order takes 3.5 ms there. The distributed
// order is asked for what takes it about the longest: four nodes, and a remainder.
func BenchmarkTake(b *testing.B) {
	m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2, CoresL3: 8}.Build(b)
	rng := rand.New(rand.NewPCG(1, 2))
	from := m.Online()
	for range 60 {
		from.Remove(rng.IntN(256))
	}
	for _, bb := range []struct {
		name string
		cpu  CPU
		n    int
	}{
		{"order=packed", CPU{}, 45},
		{"order=l3", CPU{AlignL3: true}, 45},
		{"order=distributed", CPU{DistributeAcrossNUMA: true}, 118},
	} {
		b.Run(bb.name+"/cpus=256/numa=8", func(b *testing.B) {
			p := newCPUPolicy(m, Config{Model: minorModel(36), CPU: bb.cpu})
			b.ReportAllocs()
			for b.Loop() {
				if set, fault := p.take(from, bb.n); fault != cpuOK || set.Len() != bb.n {
					b.Fatalf("took %s, fault %d", set, fault)
				}
			}
		})
	}
}

// BenchmarkCPUAdmission is a pod of three containers, hints and CPUs.
func BenchmarkCPUAdmission(b *testing.B) {
	m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2, CoresL3: 8}.Build(b)
	p := newCPUPolicy(m, Config{Model: minorModel(36), CPU: CPU{Reserved: cpuset.Of(0, 128)}})
	p.settings.Static = true
	s := p.empty()
	for i := range 40 {
		s = s.with(string(rune('a'+i)), []cpuGrant{{"c", cpuset.Of(4*i+2, 4*i+3)}})
	}
	pod := &Pod{UID: "new", Guaranteed: true, Containers: []Container{
		{Name: "i", Role: Init, CPUs: 4}, {Name: "a", CPUs: 6}, {Name: "b", CPUs: 2},
	}}
	b.ReportAllocs()
	for b.Loop() {
		a := s.admit(pod, new(room))
		for i := range pod.Containers {
			list := a.hints(&pod.Containers[i])
			if _, fault := a.allocate(&pod.Containers[i], list[0].Mask); fault != cpuOK {
				b.Fatalf("fault %d", fault)
			}
		}
		if got := a.state(); len(got.pods) != 41 {
			b.Fatal("the pod is not in the state")
		}
	}
}
