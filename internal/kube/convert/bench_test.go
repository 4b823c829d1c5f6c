package convert_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func plainPod() *corev1.Pod {
	return newPod(bounded("500m", "1"), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable })
}

func lsrPod() *corev1.Pod {
	return newPod(class("LSR"), container("4"),
		annot(annotation.ResourceSpecKey, `{"preferredCPUBindPolicy":"FullPCPUs"}`),
		func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed })
}

// A pod that asks for nothing of ours costs two allocations per cycle: its Request, and its memory there.
func TestRequestOfAPlainPodAllocatesTwice(t *testing.T) {
	pod, args := plainPod(), withDevices()
	if got := testing.AllocsPerRun(100, func() { convert.Request(pod, args) }); got > 2 {
		t.Errorf("%v allocations, want at most 2", got)
	}
}

func BenchmarkRequest(b *testing.B) {
	args := withDevices()
	gpu := newPod(gpus("c", false, "koordinator.sh/gpu", "50"))
	for name, pod := range map[string]*corev1.Pod{"pod=plain": plainPod(), "pod=LSR": lsrPod(), "pod=GPU": gpu} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				convert.Request(pod, args)
			}
		})
	}
}

func BenchmarkEntry(b *testing.B) {
	pod := lsrPod()
	pod.Spec.NodeName = "n"
	pod.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"0-3"}`
	b.ReportAllocs()
	for b.Loop() {
		convert.EntryUnder(convert.Args{}, pod)
	}
}

// BenchmarkFacts reads a node of 256 CPUs, as it happens once per change of its NodeResourceTopology.
func BenchmarkFacts(b *testing.B) {
	m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2, CoresL3: 8}.Build(b)
	nrt, node := newNRT(map[string]string{annotation.CPUTopology: convert.Topology(m).String()}), newNode(nil)
	b.Run("known=false", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			convert.Facts(node, nrt, convert.DefaultArgs())
		}
	})
	b.Run("known=true", func(b *testing.B) {
		var known convert.Known
		b.ReportAllocs()
		for b.Loop() {
			known.Read(convert.Sources{Node: node, Topology: nrt}, convert.DefaultArgs())
		}
	})
}
