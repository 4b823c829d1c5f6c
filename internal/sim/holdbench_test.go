package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/core"
)

// unreported keeps failures without an analysis, which a scheduler makes once for equal ones.
type unreported struct{ failures }

func (u unreported) Wrap(handle scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	u.handle = handle
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		u.failed[pod.Pod.UID] = failure{nil, status.AsError()}
		handle(ctx, f, pod, status, nominating, start)
	}
}

// BenchmarkHold is what a hold until a declared start costs: on 1,000 nodes, full of pods with declared ends, 500 pods
// of a whole node each wait, and in each second five pods end sooner than they declared, and five others come. Clusters
// without and with a hold alternate, a minute each, for four rounds; the first one is not counted.
func BenchmarkHold(b *testing.B) {
	const nodes, waiting, perSecond, seconds, rounds = 1000, 500, 5, 60, 4
	var text strings.Builder
	for i := range nodes {
		text.WriteString(cpuNode(fmt.Sprintf("n%04d", i), 32))
	}
	fill := func(most int) *live {
		l := newLive(b, text.String(), func(o *core.Options) {
			o.Remember, o.Reporter = true, unreported{o.Reporter.(failures)}
		})
		l.hold(func(r *gang.HoldRules) { r.Most = most })
		for i := range nodes {
			for j := range 4 {
				l.pod(fmt.Sprintf("p%d-%04d", j, i), 8, runsFor(fmt.Sprintf("%dm", 10+(7*i+3*j)%300)),
					func(p *corev1.Pod) {
						p.Spec.NodeName, p.Status.Phase = fmt.Sprintf("n%04d", i), corev1.PodRunning
						p.Status.StartTime = new(metav1.NewTime(l.time.at))
					})
			}
		}
		for i := range waiting {
			l.pod(fmt.Sprintf("w%03d", i), 32, runsFor(fmt.Sprintf("%dm", 10+i%50)))
		}
		l.runUntilIdle()
		return l
	}
	var took [2][]time.Duration
	for b.Loop() {
		clusters := []*live{fill(0), fill(1)}
		ended := [2]int{}
		for round := range rounds {
			for most, l := range clusters {
				from := cpuTime(b)
				for second := range seconds {
					l.pass(time.Second)
					for i := range perSecond {
						old := fmt.Sprintf("default/p%d-%04d", ended[most]/nodes, 37*ended[most]%nodes)
						o, _, _ := l.api.pods.GetStore().GetByKey(old)
						l.api.remove(o.(*corev1.Pod))
						ended[most]++
						l.pod(fmt.Sprintf("c%d-%d-%d", round, second, i), 8, runsFor("20m"))
					}
					l.runUntilIdle()
				}
				if round > 0 {
					took[most] = append(took[most], cpuTime(b)-from)
				}
			}
		}
	}
	median := func(t []time.Duration) float64 { slices.Sort(t); return t[len(t)/2].Seconds() }
	without, with := median(took[0]), median(took[1])
	b.ReportMetric(1000*without/seconds, "cpu-ms/s-without")
	b.ReportMetric(1000*with/seconds, "cpu-ms/s-with")
	b.ReportMetric(with/without, "ratio")
	b.ReportMetric(0, "ns/op")
}
