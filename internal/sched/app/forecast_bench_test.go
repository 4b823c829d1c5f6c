package app

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// BenchmarkForecast makes forecasts for 500 pods of 20 kinds that wait on 1,000 nodes, full of pods with declared ends.
// It reports the CPU time of one, and which part of a core that is with one forecast a minute.
func BenchmarkForecast(b *testing.B) {
	a := &timed{asked: &asked{newScheduler(b), b}, now: noonOfForecast}
	a.objects = &timedObjects{Objects: a.whatIf.Objects}
	began := time.Now()
	a.whatIf.Objects = a.objects
	a.whatIf.Clock = clockOf(func() time.Time { return a.now.Add(time.Since(began)) }) // which bounds a forecast
	m := grid.Worked().Build(b)
	for i := range 1000 {
		name := fmt.Sprintf("n%d", i)
		node := object.Node(name, map[string]string{corev1.LabelHostname: name}, "cpu", "32", "memory", "64Gi", "pods",
			"110")
		a.core.Nodes.AddNode(klog.Background(), node)
		a.store.PutNode(node)
		a.store.PutTopology(object.Topology(name, m, nil))
		for j := range 4 {
			a.add(bound(fmt.Sprintf("p%d-%d", i, j), name, list(8*j, 8), since(0),
				expects(fmt.Sprintf("%dm", 1+(4*i+j)%300))))
		}
	}
	a.store.MarkSynced()
	for i := range 500 {
		a.add(exclusive(fmt.Sprintf("w%03d", i), fmt.Sprint(2+2*(i%10)), age(i%7),
			expects(fmt.Sprintf("%dm", 10+10*(i%2)))))
	}
	a.forecast() // makes the plugins
	before := usedCPU()
	for b.Loop() {
		a.now = a.now.Add(time.Minute)
		a.forecast()
	}
	each := (usedCPU() - before).Seconds() / float64(b.N)
	b.ReportMetric(each, "cpu-s/op")
	b.ReportMetric(100*each/60, "percent-of-a-core")
}
