package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// figures of one scheduler in one case of one round.
type figures struct {
	PodsPerSecond  float64       `json:"podsPerSecond"`
	SchedulerCPUms float64       `json:"schedulerCPUmsPerPod"`
	PlaneCPUms     float64       `json:"controlPlaneCPUmsPerPod"`
	P50, P99       time.Duration // create (or due) to bound
	PeakMemory     int64         `json:"peakMemoryBytes"`
	Bound, Of      int
	BatchHints     map[string]float64 `json:"batch,omitempty"`
	Startup        time.Duration      // until the first bind
	StartCPU       time.Duration      // of the scheduler until then
	Gangs          gangFigures        `json:"gangs,omitzero"`
	Refused        refused            `json:"refused,omitzero"`
}

// refused is the attempts that ended without a node, and how long one took.
type refused struct{ Attempts, Milliseconds float64 }

func (f figures) complete() bool { return f.Bound == f.Of && f.Gangs.Partial == 0 }

// binds follows the pods of a run and notes when each was first seen with a node.
type binds struct {
	mu      sync.Mutex
	created map[string]time.Time // by pod: create call begun, or due time
	bound   map[string]time.Time
	want    int
	size    int // of gangs; 0 is none
	all     chan struct{}
	first   chan struct{}
}

func newBinds(want, size int) *binds {
	return &binds{
		created: map[string]time.Time{}, bound: map[string]time.Time{}, want: want, size: size,
		all: make(chan struct{}), first: make(chan struct{}),
	}
}

func (b *binds) due(pod string, t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.created[pod] = t
}

func (b *binds) see(pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.bound[pod.Name]; known {
		return
	}
	b.bound[pod.Name] = now
	if len(b.bound) == 1 {
		close(b.first)
	}
	if len(b.bound) == b.want {
		close(b.all)
	}
}

// placed selects the pods that have a node: the others would take the harness as much again.
const placed = "spec.nodeName!="

// follow watches until ctx ends. A watch may close without an error under bursts: it goes on from the last version,
// and lists again when the server has forgotten that one.
func (b *binds) follow(ctx context.Context, c *cluster) error {
	version, err := b.list(ctx, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		w, err := c.kube.CoreV1().Pods(namespace).Watch(ctx,
			metav1.ListOptions{FieldSelector: placed, ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				if version, err = b.list(ctx, c); err == nil {
					continue
				}
			}
			continue // a watch that could not be opened is tried again until ctx ends
		}
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if e.Type == watch.Error || !ok {
				if version, err = b.list(ctx, c); err != nil && ctx.Err() == nil {
					return err
				}
				break
			}
			version = pod.ResourceVersion
			if e.Type != watch.Bookmark {
				b.see(pod, time.Now())
			}
		}
		w.Stop()
	}
	return nil
}

func (b *binds) list(ctx context.Context, c *cluster) (string, error) {
	pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: placed})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		b.see(&pods.Items[i], time.Now())
	}
	return pods.ResourceVersion, nil
}

// rates returns binds per second between the first and the last bind, and the latency percentiles.
func (b *binds) rates() (perSecond float64, p50, p99 time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var times []time.Time
	var latencies []time.Duration
	for pod, t := range b.bound {
		times = append(times, t)
		if from, ok := b.created[pod]; ok {
			latencies = append(latencies, t.Sub(from))
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	slices.Sort(latencies)
	if len(times) > 1 {
		perSecond = float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
	}
	return perSecond, percentile(latencies, 0.50), percentile(latencies, 0.99)
}

func (b *binds) isBound(pod string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.bound[pod]
	return known
}

func (b *binds) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.bound)
}

func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// account reads the CPU of scheduler and control plane at one moment.
type account struct{ scheduler, plane time.Duration }

func (c *cluster) account(schedulerPID int) (account, error) {
	s, err := cpu(schedulerPID)
	if err != nil {
		return account{}, fmt.Errorf("scheduler's CPU: %w", err)
	}
	p, err := cpu(c.pid)
	if err != nil {
		return account{}, fmt.Errorf("control plane's CPU: %w", err)
	}
	return account{s, p}, nil
}
