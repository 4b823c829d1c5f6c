//go:build linux

package stage

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

// BestEffortGroup is the cgroup that a kubelet makes for BestEffort pods.
func (s *Stage) BestEffortGroup() string { return path.Join(s.group, "kubepods", "besteffort") }

// Suppress makes a NodeSLO that suppresses the best-effort pods of a node by quota, up to a use of the node in percent.
// Its end takes the NodeSLO away; it is called when the test ends, if not before.
func (p *Plane) Suppress(node string, percent int64) (end func()) {
	p.t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&slo.NodeSLO{
		TypeMeta:   metav1.TypeMeta{APIVersion: slo.GroupVersion().String(), Kind: slo.NodeSLOKind},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: slo.NodeSLOSpec{ResourceUsedThresholdWithBE: &slo.ResourceThresholdStrategy{
			Enable: new(true), CPUSuppressThresholdPercent: &percent, CPUSuppressPolicy: slo.CPUCfsQuotaPolicy,
		}},
	})
	must(p.t, err)
	_, err = p.Dynamic.Resource(slo.NodeSLOs()).Create(p.t.Context(), &unstructured.Unstructured{Object: object},
		metav1.CreateOptions{})
	must(p.t, err)
	end = func() {
		ctx, cancel := timeout(patience)
		defer cancel()
		must(p.t, ignoreGone(p.Dynamic.Resource(slo.NodeSLOs()).Delete(ctx, node, metav1.DeleteOptions{})))
	}
	p.t.Cleanup(end)
	return end
}

// Use is the CPU time that best-effort pods and another group have used at a time, and the quota of the former in a
// period of 100 ms; -1 for none.
type Use struct {
	At     time.Time
	BE, LS time.Duration
	Quota  time.Duration
}

// Use reads what best-effort pods and another group have used.
func (s *Stage) Use(ls string) (u Use, err error) {
	u.At = time.Now()
	if u.BE, err = s.used(s.BestEffortGroup()); err == nil {
		if u.LS, err = s.used(ls); err == nil {
			u.Quota, err = s.quota(s.BestEffortGroup())
		}
	}
	return u, err
}

func (s *Stage) used(group string) (time.Duration, error) {
	file, unit := "cpuacct.usage", time.Nanosecond
	if s.hierarchies.Unified() {
		file, unit = "cpu.stat", time.Microsecond
	}
	text, err := s.hierarchies.Read(group, file)
	if err != nil {
		return 0, err
	}
	var n int64
	_, err = fmt.Sscan(strings.TrimPrefix(text, "usage_usec "), &n)
	return time.Duration(n) * unit, err
}

func (s *Stage) quota(group string) (time.Duration, error) {
	file := "cpu.cfs_quota_us"
	if s.hierarchies.Unified() {
		file = "cpu.max"
	}
	text, err := s.hierarchies.Read(group, file)
	if err != nil {
		return 0, err
	}
	text, _, _ = strings.Cut(text, " ")
	if text == "max" || text == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Microsecond, err
}

// Reaction is how long after the beginning of a load best-effort pods had a quota of no more than a target, and used no
// more than that.
type Reaction struct{ Quota, Use time.Duration }

// period is that of quotas.
const period = quotaPeriod * time.Microsecond

// WatchLoad reads what best-effort pods and a group use from before load is called until both have reached what follows
// from it: the group uses CPUs, and best-effort pods no more than a target in each period of quotas. It returns what it
// read. A use counts with 3 ms more than the target: the kernel takes back what was too much in later periods.
func (s *Stage) WatchLoad(t testing.TB, ls string, target time.Duration, load func()) (Reaction, []Use) {
	t.Helper()
	const started, tolerance, step = 20 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond
	called := make(chan struct{})
	go func() { defer close(called); load() }()
	var read []Use
	var r Reaction
	begun := -1
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(step) {
		u, err := s.Use(ls)
		must(t, err)
		read = append(read, u)
		now := len(read) - 1
		if begun < 0 && u.LS-read[0].LS >= started {
			begun = now
		}
		if begun < 0 {
			continue
		}
		since := u.At.Sub(read[begun].At)
		if r.Quota == 0 && u.Quota >= 0 && u.Quota <= target {
			r.Quota = since
		}
		first := begun
		for first < now && u.At.Sub(read[first+1].At) >= period {
			first++
		}
		if r.Quota > 0 && u.At.Sub(read[first].At) >= period && u.BE-read[first].BE <= target+tolerance {
			r.Use = max(since-period, r.Quota)
			<-called
			return r, read
		}
	}
	t.Fatalf("waited %v for best-effort pods to use %v in %v, they have %+v of late", patience, target, period,
		read[max(0, len(read)-30):])
	return r, read
}
