package ranking

import (
	"fmt"
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

	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// BenchmarkCycle is the scheduling cycle alone, without queue, Binding and API server: 50 alternating workloads, by a
// pass of upstream's code over the nodes that its sampling takes, and by rankings. cpu-µs/pod is user + system time.
func BenchmarkCycle(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, owned := range []bool{false, true} {
			for _, ranked := range []bool{false, true} {
				b.Run(fmt.Sprintf("nodes=%d/owned=%t/ranked=%t", nodes, owned, ranked), func(b *testing.B) {
					benchmarkCycle(b, nodes, owned, ranked, -1)
				})
			}
		}
	}
}

// BenchmarkCycleBesideNominatedPods is BenchmarkCycle where few nodes have room: the others are full, or pods wait that
// are nominated to them. After every tenth cycle the status of one of these is written, after every thousandth a gang
// of 64 of them is tried.
func BenchmarkCycleBesideNominatedPods(b *testing.B) {
	for _, waiting := range []int{0, 512} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) { benchmarkCycle(b, 1000, false, true, waiting) })
	}
}

// BenchmarkCycleByLoad is BenchmarkCycle with LoadAwareScheduling, which skips all pods while no node has a NodeMetric.
// In every sixtieth cycle a node gets a new
// NodeMetric, as of 1,000 nodes that report each minute at 1,000 pods/s.
func BenchmarkCycleByLoad(b *testing.B) {
	for _, owned := range []bool{false, true} {
		for _, reports := range []bool{false, true} {
			b.Run(fmt.Sprintf("owned=%t/reports=%t", owned, reports), func(b *testing.B) {
				c := newCluster(b, 1)
				c.reports = reports
				c.benchmarkCycle(b, 1000, owned, true, -1)
			})
		}
	}
}

// reportIdle makes a report of a node that uses little, and of 30 pods.
func (c *cluster) reportIdle(node int) {
	r := &load.Report{
		Updated: c.now, Interval: time.Minute, Pods: map[string]load.PodUse{}, Use: &load.Amounts{1000, 1 << 30},
	}
	for i := range 30 {
		r.Pods[fmt.Sprintf("bench/%d", i)] = load.PodUse{Use: load.Amounts{30, 30 << 20}}
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

func benchmarkCycle(b *testing.B, nodes int, owned, ranked bool, waiting int) {
	b.Helper()
	newCluster(b, 1).benchmarkCycle(b, nodes, owned, ranked, waiting)
}

func (c *cluster) benchmarkCycle(b *testing.B, nodes int, owned, ranked bool, waiting int) {
	b.Helper()
	logger := klog.Background()
	res := object.List("cpu", "32", "memory", "256Gi", "pods", "250")
	for i := range nodes {
		name := fmt.Sprintf("bench-%05d", i)
		if waiting >= 0 && i >= waiting+withRoom {
			res = object.List("pods", "250")
		}
		c.cache.AddNode(logger, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:   name,
				Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint(i % 3)},
			},
			Status: corev1.NodeStatus{Allocatable: res},
		})
		if c.reports {
			c.reportIdle(i)
		}
	}
	const apps = 50
	for i := range apps {
		app := fmt.Sprintf("app-%d", i)
		meta := metav1.ObjectMeta{Namespace: "default", Name: app}
		selector := map[string]string{"app": app}
		_ = c.factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(&appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector}},
		})
		if i%2 == 0 {
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
	p, ctx, yes := c.profiles["all"], b.Context(), true
	find := nodes * max(5, 50-nodes/125) / 100 // upstream's sample
	hinted := 0
	var from, to syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &from)
	b.ResetTimer()
	for i := range b.N {
		if waiting > 0 {
			c.disturbed(i)
		}
		if c.reports && i%60 == 0 {
			c.reportIdle(i / 60 % nodes)
		}
		name, app := fmt.Sprintf("plain-%d", i), "app"
		request := int64(100)
		if owned {
			app = fmt.Sprintf("app-%d", i%apps)
		} else {
			request = int64(50 + 2*(i%apps))
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
		if owned {
			pod.Namespace = "default"
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app,
				Controller: &yes,
			}}
		}
		if err := c.cache.UpdateSnapshot(logger, c.snapshot); err != nil {
			b.Fatal(err)
		}
		state, f := framework.NewCycleState(), p.Framework
		if ranked {
			f = p
		}
		if _, status, _ := f.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
			b.Fatal(status)
		}
		signature := f.SignPod(ctx, pod)
		node := ""
		if ranked {
			node = p.GetNodeHint(ctx, pod, signature, state, 0)
		}
		if node != "" {
			hinted++
			info, err := c.snapshot.NodeInfos().Get(node)
			if err != nil || !f.RunFilterPluginsWithNominatedPods(ctx, state, pod, info).IsSuccess() {
				b.Fatal("the hint is refused")
			}
			f.StoreScheduleResults(ctx, signature, node, node, nil, 0)
		} else {
			all, _ := c.snapshot.NodeInfos().List()
			feasible, found := make([]fwk.NodeInfo, find), atomic.Int64{}
			start := c.start
			f.Parallelizer().Until(ctx, len(all), func(k int) {
				if found.Load() >= int64(find) {
					return
				}
				n := all[(start+k)%len(all)]
				if f.RunFilterPluginsWithNominatedPods(ctx, state, pod, n).IsSuccess() {
					if at := found.Add(1); at <= int64(find) {
						feasible[at-1] = n
					}
				}
			}, "Filter")
			c.start += find
			feasible = feasible[:min(int(found.Load()), find)]
			if status := f.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
				b.Fatal(status)
			}
			scores, status := f.RunScorePlugins(ctx, state, pod, feasible)
			if !status.IsSuccess() {
				b.Fatal(status)
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
			b.Fatal(err)
		}
		if c.reports {
			estimated, _ := c.loads.Estimate(assumed, c.now)
			c.loads.Assign(node, estimated)
		}
		if err := c.cache.AddPod(logger, assumed.DeepCopy()); err != nil {
			b.Fatal(err)
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &to)
	cpu := func(r syscall.Rusage) time.Duration { return time.Duration(r.Utime.Nano() + r.Stime.Nano()) }
	b.ReportMetric(float64((cpu(to)-cpu(from)).Microseconds())/float64(b.N), "cpu-µs/pod")
	b.ReportMetric(float64(hinted)/float64(b.N), "ranked/pod")
}
