package evict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
)

// BenchmarkArbitrate is what is asked twice a second: which of the waiting jobs may start, beside the pods of a cluster
// and the jobs of a day.
func BenchmarkArbitrate(b *testing.B) {
	for _, size := range []struct{ pods, waiting, ended int }{{1000, 10, 100}, {100_000, 100, 5000}} {
		b.Run(fmt.Sprintf("pods=%d/waiting=%d/ended=%d", size.pods, size.waiting, size.ended), func(b *testing.B) {
			s := evict.NewState()
			for i := range size.pods {
				key := fmt.Sprint("Deployment default/w", i/20)
				s.SetWorkload(evict.Workload{
					Key: key, Kind: evict.Deployment, Replicas: 20, StatusReplicas: 20, Updated: 20, Ready: 20,
				})
				uid := fmt.Sprint(i)
				s.SetPod(pod(uid, func(p *evict.Pod) { p.Workload = key }))
				switch {
				case i < size.waiting:
					s.SetJob(move.Job{UID: uid, Name: uid, PodUID: uid, Created: ago(time.Minute)})
				case i < size.waiting+size.ended:
					at := evicted(time.Duration(i) * time.Second)
					s.SetJob(job(uid, uid, at, func(j *move.Job) { j.Workload = key }))
				}
			}
			p, waiting := limits(evict.Policy{}), s.Waiting()
			b.ReportAllocs()
			for b.Loop() {
				s.Arbitrate(p, waiting, now)
			}
			b.ReportMetric(float64(size.waiting*b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
