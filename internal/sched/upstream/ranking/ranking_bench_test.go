package ranking

import (
	"cmp"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// BenchmarkCycle is the scheduling cycle alone, without queue, Binding and API server: 50 and 1,000 alternating
// workloads, by a pass of upstream's code over the nodes that its sampling takes, and by rankings. cpu-µs/pod is user +
// system time.
func BenchmarkCycle(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, m := range []mix{{sizes: 50}, {owners: 50}, {sizes: 1000}, {owners: 1000}} {
			for _, ranked := range []bool{false, true} {
				b.Run(fmt.Sprintf("nodes=%d/sizes=%d/owners=%d/ranked=%t", nodes, m.sizes, m.owners, ranked),
					func(b *testing.B) { benchmarkCycle(b, nodes, m, ranked, -1) })
			}
		}
	}
}

// BenchmarkCycleBesideNominatedPods is BenchmarkCycle where few nodes have room: the others are full, or pods wait that
// are nominated to them. After every tenth cycle the status of one of these is written, after every thousandth a gang
// of 64 of them is tried.
func BenchmarkCycleBesideNominatedPods(b *testing.B) {
	for _, waiting := range []int{0, 512} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			benchmarkCycle(b, 1000, mix{sizes: 50}, true, waiting)
		})
	}
}

// BenchmarkCycleByLoad is BenchmarkCycle without and with LoadAwareScheduling, by rankings: 50 pods without, 100 with
// and 50 without, and so on, so that what else the machine does hits both. Before every sixtieth pod a node gets a new
// NodeMetric, as of 1,000 nodes that report each minute at 1,000 pods/s. without-µs/pod and more-µs/pod are user +
// system time, more-B/pod is allocated. A garbage collection hits either.
func BenchmarkCycleByLoad(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		for _, m := range []mix{{sizes: 1}, {sizes: 50}, {owners: 1}, {owners: 50}} {
			b.Run(fmt.Sprintf("nodes=%d/sizes=%d/owners=%d", nodes, m.sizes, m.owners), func(b *testing.B) {
				clusters, spent, bytes := [2]*cluster{}, [2]time.Duration{}, [2]uint64{}
				for i := range clusters {
					c := newClusterBy(b, 1, i == 1)
					c.prepare(nodes, m, -1)
					c.reports = true
					for n := range nodes * i {
						c.reportIdle(n)
					}
					clusters[i] = c
				}
				turn := func(i int) {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					from, c := processTime(), clusters[i]
					for range 50 {
						if i == 1 && c.cycles%60 == 0 {
							c.reportIdle(c.cycles / 60 % nodes)
						}
						c.cycle(true)
					}
					spent[i] += processTime() - from
					runtime.ReadMemStats(&after)
					bytes[i] += after.TotalAlloc - before.TotalAlloc
				}
				for b.Loop() {
					for i := range 4 { // without, with, with, without
						turn((i + 1) / 2 % 2)
					}
				}
				perPod := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N*100) }
				b.ReportMetric(perPod(spent[0]), "without-µs/pod")
				b.ReportMetric(perPod(spent[1]-spent[0]), "more-µs/pod")
				b.ReportMetric((float64(bytes[1])-float64(bytes[0]))/float64(b.N*100), "more-B/pod")
			})
		}
	}
}

// processTime is the user and system time of the process so far.
func processTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// reportIdle makes a report of a node that uses little, and of 30 pods.
func (c *cluster) reportIdle(node int) {
	r := &load.Report{
		Updated: c.now, Interval: time.Minute, Pods: map[string]load.PodUse{}, Use: &amount.Pair{1000, 1 << 30},
	}
	for i := range 30 {
		r.Pods[fmt.Sprintf("bench/%d", i)] = load.PodUse{Use: amount.Pair{30, 30 << 20}}
	}
	c.loads.PutMetric(&kube.NodeMetric{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%05d", node)}, Report: r,
	})
}

// withRoom is how many nodes have room beside pods that wait.
const withRoom = 64

// disturbed lets pods wait beside a cycle.
func (c *cluster) disturbed(cycle int) {
	c.t.Helper()
	if at := cycle / 10 % len(c.waiting); cycle%10 == 0 {
		was := c.waiting[at]
		changed := was.DeepCopy()
		changed.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Message: fmt.Sprint(cycle)}}
		c.queue.Update(c.t.Context(), was, changed)
		c.waiting[at] = changed
	}
	for at := range 64 {
		if at += cycle / 1000 * 64 % len(c.waiting); cycle%1000 == 0 {
			c.leave(at, func() {})
			c.nominate(at, fmt.Sprintf("bench-%05d", at))
		}
	}
}

// mix is which pods come: of so many sizes, or of so many ReplicaSets, half of them with a Service. request is the
// milli-CPUs of pods of one size, 100 by default.
type mix struct {
	sizes, owners int
	request       int64
}

func benchmarkCycle(b *testing.B, nodes int, m mix, ranked bool, waiting int) {
	b.Helper()
	c := newCluster(b, 1)
	c.prepare(nodes, m, waiting)
	from := processTime()
	b.ResetTimer()
	for i := range b.N {
		if waiting > 0 {
			c.disturbed(i)
		}
		c.cycle(ranked)
	}
	b.ReportMetric(float64((processTime()-from).Microseconds())/float64(b.N), "cpu-µs/pod")
	b.ReportMetric(float64(c.hinted)/float64(b.N), "ranked/pod")
}

// prepare adds nodes, and controllers for the pods of a mix. Where pods wait, the other nodes have no CPUs.
func (c *cluster) prepare(nodes int, m mix, waiting int) {
	c.t.Helper()
	c.mix, c.find = m, nodes*max(5, 50-nodes/125)/100 // upstream's sample
	res := object.List("cpu", "32", "memory", "256Gi", "pods", "250")
	for i := range nodes {
		name := fmt.Sprintf("bench-%05d", i)
		if waiting >= 0 && i >= waiting+withRoom {
			res = object.List("pods", "250")
		}
		c.cache.AddNode(klog.Background(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:   name,
				Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint(i % 3)},
			},
			Status: corev1.NodeStatus{Allocatable: res},
		})
	}
	for i := range m.owners {
		app := fmt.Sprintf("app-%d", i)
		meta := metav1.ObjectMeta{Namespace: "default", Name: app}
		selector := map[string]string{"app": app}
		_ = c.factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(&appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector}},
		})
		if i%2 == 0 && m.owners > 1 {
			_ = c.factory.Core().V1().Services().Informer().GetIndexer().Add(&corev1.Service{
				ObjectMeta: meta,
				Spec:       corev1.ServiceSpec{Selector: selector},
			})
		}
	}
	for i := range waiting {
		c.wait("32")
		c.nominate(i, fmt.Sprintf("bench-%05d", i))
	}
}

// nextOfMix returns the next pod of the mix.
func (c *cluster) nextOfMix() *corev1.Pod {
	i, yes := c.cycles, true
	name, app, request := fmt.Sprintf("plain-%d", i), "app", cmp.Or(c.mix.request, 100)
	switch {
	case c.mix.owners > 0:
		app = fmt.Sprintf("app-%d", i%c.mix.owners)
	case c.mix.sizes > 1:
		request = int64(50 + 2*(i%c.mix.sizes))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "bench", Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{
			SchedulerName: "all",
			Containers: []corev1.Container{{
				Name: "c", Image: "image",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    *resource.NewMilliQuantity(request, resource.DecimalSI),
					corev1.ResourceMemory: resource.MustParse("128Mi"),
				}},
			}},
		},
	}
	if c.mix.owners > 0 {
		pod.Namespace = "default"
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, Controller: &yes,
		}}
	}
	return pod
}

// cycle schedules the next pod of the mix.
func (c *cluster) cycle(ranked bool) {
	c.t.Helper()
	logger, ctx, p, pod := klog.Background(), c.t.Context(), c.profiles["all"], c.nextOfMix()
	c.cycles++
	if err := c.cache.UpdateSnapshot(logger, c.snapshot); err != nil {
		c.t.Fatal(err)
	}
	state, f := framework.NewCycleState(), p.Framework
	if ranked {
		f = p
	}
	if _, status, _ := f.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		c.t.Fatal(status)
	}
	signature := f.SignPod(ctx, pod)
	node := ""
	if ranked {
		node = p.GetNodeHint(ctx, pod, signature, state, 0)
	}
	if node != "" {
		c.hinted++
		info, err := c.snapshot.NodeInfos().Get(node)
		if err != nil || !f.RunFilterPluginsWithNominatedPods(ctx, state, pod, info).IsSuccess() {
			c.t.Fatal("the hint is refused")
		}
		f.StoreScheduleResults(ctx, signature, node, node, nil, 0)
	} else {
		all, _ := c.snapshot.NodeInfos().List()
		feasible, found := make([]fwk.NodeInfo, c.find), atomic.Int64{}
		start := c.start
		f.Parallelizer().Until(ctx, len(all), func(k int) {
			if found.Load() >= int64(c.find) {
				return
			}
			n := all[(start+k)%len(all)]
			if f.RunFilterPluginsWithNominatedPods(ctx, state, pod, n).IsSuccess() {
				if at := found.Add(1); at <= int64(c.find) {
					feasible[at-1] = n
				}
			}
		}, "Filter")
		c.start += c.find
		feasible = feasible[:min(int(found.Load()), c.find)]
		if status := f.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
			c.t.Fatal(status)
		}
		scores, status := f.RunScorePlugins(ctx, state, pod, feasible)
		if !status.IsSuccess() {
			c.t.Fatal(status)
		}
		best := scores[0]
		for _, s := range scores {
			if s.TotalScore > best.TotalScore {
				best = s
			}
		}
		if node = best.Name; ranked {
			f.StoreScheduleResults(ctx, signature, "", node, nil, 0)
		}
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	if err := c.cache.AssumePod(logger, assumed); err != nil {
		c.t.Fatal(err)
	}
	bound := assumed.DeepCopy()
	if c.reports {
		if status := f.RunReservePluginsReserve(ctx, state, assumed, node); !status.IsSuccess() {
			c.t.Fatal(status)
		}
		c.loads.PutPod(bound)
	}
	if err := c.cache.AddPod(logger, bound); err != nil {
		c.t.Fatal(err)
	}
}
