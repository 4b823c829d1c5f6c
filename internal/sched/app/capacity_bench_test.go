package app

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// BenchmarkCapacity counts the pods that fit on nodes of 128 CPUs and 8 GPUs. Each node has pods with other CPUs, so
// that few nodes have the same account.
func BenchmarkCapacity(b *testing.B) {
	machine := grid.Machine{Sockets: 2, Nodes: 2, Cores: 16, Threads: 2}
	for _, nodes := range []int{100, 1000, 5000, 10_000} {
		var a *asked // made once for all pods, if one of them is chosen
		for name, pod := range map[string]*corev1.Pod{
			"shared":    exclusive("next", "4", object.Class("LS")),
			"exclusive": exclusive("next", "8"),
			"gpu":       exclusive("next", "8", object.Both("cpu", "8", "memory", "1Gi", "koordinator.sh/gpu", "100")),
		} {
			b.Run(fmt.Sprintf("nodes=%d/pod=%s", nodes, name), func(b *testing.B) {
				if a == nil {
					a = &asked{newScheduler(b), b}
					a.whatIf.Deadline = time.Hour
					random := rand.New(rand.NewPCG(39, 4))
					for i := range nodes {
						node := fmt.Sprintf("n%d", i)
						a.equip(node, machine, map[string]string{}, 8, 110)
						for core := 0; core < 64; core += 16 {
							if cores := 1 + random.IntN(12); cores > 1 {
								a.add(exclusive(fmt.Sprintf("p%d-%d", i, core), fmt.Sprint(2*cores), object.On(node),
									object.CPUs(threads(core, cores))))
							}
						}
					}
					a.store.MarkSynced()
				}
				_ = a.config.InformerFactory.Core().V1().Pods().Informer().GetStore().Add(pod)
				q := view.WhatIf{Ask: view.Ask{Mode: view.CountPods, Pods: []string{"default/next"}}}
				pods, before := 0, usedCPU()
				for b.Loop() {
					got, err := a.whatIf.Answer(b.Context(), &q)
					if err != nil || got.Capacity.Bound != "" || got.Capacity.Pods == 0 {
						b.Fatalf("got %+v, %v", got, err)
					}
					pods = got.Capacity.Pods
				}
				b.ReportMetric(float64(pods), "pods")
				b.ReportMetric(float64((usedCPU()-before).Milliseconds())/float64(b.N), "CPU-ms/answer")
			})
		}
	}
}

// threads returns the CPUs of n cores from the first one on, of a machine of 64 cores.
func threads(first, n int) (list string) {
	return fmt.Sprintf("%d-%d,%d-%d", first, first+n-1, first+64, first+64+n-1)
}

// usedCPU is the CPU time of this process. An idle machine with one CPU takes as long for an answer.
func usedCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
