package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// BenchmarkForecast makes forecasts for 500 pods of 10 sizes that wait on 1,000 nodes, full of pods with declared ends.
// It reports the CPU time of one, which part of a core that is with one forecast a minute, the default, and with one in
// ten seconds, the most, and how many pods the bound of its time left out.
func BenchmarkForecast(b *testing.B) {
	for _, deadline := range []time.Duration{2 * time.Second, time.Minute} { // the default, and enough
		b.Run("deadline="+deadline.String(), func(b *testing.B) { benchmarkForecast(b, deadline) })
	}
}

func benchmarkForecast(b *testing.B, deadline time.Duration) {
	b.Helper()
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
			expects(fmt.Sprintf("%dm", 10+i%50))))
	}
	a.whatIf.Deadline = deadline
	a.forecast() // makes the plugins
	before, leftOut := usedCPU(), 0
	for b.Loop() {
		a.now = a.now.Add(time.Minute)
		leftOut = 0
		for _, start := range a.forecast() {
			if strings.HasSuffix(start, " not estimated") {
				leftOut++
			}
		}
	}
	each := (usedCPU() - before).Seconds() / float64(b.N)
	b.ReportMetric(each, "cpu-s/op")
	b.ReportMetric(100*each/60, "percent/min")
	b.ReportMetric(100*each/10, "percent/10s")
	b.ReportMetric(float64(leftOut), "left-out")
}
