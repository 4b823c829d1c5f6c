//go:build linux

package stage

import (
	"fmt"
	"os"
	"path"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// BestEffortGroup is the cgroup that a kubelet makes for BestEffort pods.
func (s *Stage) BestEffortGroup() string { return path.Join(s.group, "kubepods", "besteffort") }

// Suppress makes a NodeSLO that suppresses the best-effort pods of a node by quota, up to a use of the node in percent.
// Its end takes the NodeSLO away; it is called when the test ends, if not before.
func (p *Plane) Suppress(node string, percent int64) (end func()) {
	p.t.Helper()
	_, err := p.Dynamic.Resource(slo.NodeSLOs()).Create(p.t.Context(),
		object.NodeSLO(node, slo.CPUCfsQuotaPolicy, percent), metav1.CreateOptions{})
	must(p.t, err)
	end = func() {
		ctx, cancel := timeout(patience)
		defer cancel()
		must(p.t, ignoreGone(p.Dynamic.Resource(slo.NodeSLOs()).Delete(ctx, node, metav1.DeleteOptions{})))
	}
	p.t.Cleanup(end)
	return end
}

// HideOthers lets /proc/stat count what pods use alone, until the test ends: other work of the machine does not count
// as the node's then, though it takes CPU time from all.
func (s *Stage) HideOthers() {
	s.t.Helper()
	kernel, err := os.ReadFile("/proc/stat")
	must(s.t, err)
	_, rest, _ := strings.Cut(string(kernel), "\nintr")
	f, err := os.Create(s.Path("stat"))
	must(s.t, err)
	write := func() {
		used, err := s.used(path.Join(s.group, "kubepods"))
		if err != nil {
			return // it does not exist yet
		}
		text, n := "", int64(goruntime.NumCPU())
		for i := int64(-1); i < n; i++ {
			name, ticks := "cpu ", used.Milliseconds()/10
			if i >= 0 {
				name, ticks = fmt.Sprint("cpu", i), ticks/n
			}
			text += fmt.Sprintf("%s %012d 0 0 0 0 0 0 0 0 0\n", name, ticks)
		}
		_, _ = f.WriteAt([]byte(text+"intr"+rest), 0)
	}
	must(s.t, s.hierarchies.Make(path.Join(s.group, "kubepods")))
	write()
	Bind(s.t, f.Name(), "/proc/stat")
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(10 * time.Millisecond); ; write() {
			select {
			case <-tick.C:
			case <-ended:
				tick.Stop()
				_ = f.Close()
				return
			}
		}
	}()
	s.t.Cleanup(func() { close(ended); <-done })
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

// Watch calls load, and returns what best-effort pods and a group have used meanwhile, read each 5 ms.
func (s *Stage) Watch(ls string, load func()) []Use {
	ended, read := make(chan struct{}), make(chan []Use)
	go func() {
		var all []Use
		defer func() { read <- all }()
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			if u, err := s.Use(ls); err == nil {
				all = append(all, u)
			}
			select {
			case <-tick.C:
			case <-ended:
				tick.Stop()
				return
			}
		}
	}()
	func() {
		defer close(ended)
		load()
	}()
	return <-read
}

// Reaction is how long after the beginning of a load best-effort pods had a quota of no more than a target, and used no
// more than that.
type Reaction struct{ Quota, Use time.Duration }

// Begun returns the index at which the load of the group that was watched has begun: the group has used 20 ms.
func Begun(read []Use) int {
	return max(0, slices.IndexFunc(read, func(u Use) bool { return u.LS-read[0].LS >= 20*time.Millisecond }))
}

// React returns the reaction to the load of the group that was watched; false if best-effort pods had no more than the
// target before, or no quota, or never came down to it. In the first period of a quota 3 ms more than the target count
// as the target: the kernel takes back in later periods what was too much.
func React(read []Use, target time.Duration) (r Reaction, ok bool) {
	const tolerance, period = 3 * time.Millisecond, quotaPeriod * time.Microsecond
	begun := Begun(read)
	if read[begun].Quota <= target {
		return r, false
	}
	for first, u := range read[begun:] {
		if u.Quota > target {
			continue
		}
		since := u.At.Sub(read[begun].At)
		if r.Quota == 0 {
			r.Quota = since
		}
		for _, later := range read[begun+first:] {
			if later.At.Sub(u.At) >= period {
				if later.BE-u.BE <= target+tolerance {
					r.Use = since
					return r, true
				}
				break
			}
		}
	}
	return r, false
}
