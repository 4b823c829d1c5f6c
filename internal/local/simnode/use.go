package simnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// useInterval is the time between two updates of what pods use.
const useInterval = time.Second

// use is what the processes of a simulated machine use. It writes the files of procfs, sysfs and the cgroup tree that
// say so: in place, with numbers of a fixed width, so that a reader that keeps a file open sees one state or the next.
type use struct {
	n       *node
	m       *topo.Machine
	last    time.Time
	busy    []int64          // CPU time of each CPU, by dense index, in nanoseconds
	pods    map[string]int64 // CPU time of each pod, by its group, in nanoseconds
	started time.Time
	// kept are the lines of /proc/stat and /proc/meminfo that do not change.
	keptStat, keptMemory string
	memory               int64 // of the machine, in KiB
}

// newUse writes the files for the first time: the agent opens them when it starts.
func newUse(n *node, m *topo.Machine) (*use, error) {
	u := &use{n: n, m: m, busy: make([]int64, m.NumCPUs()), pods: map[string]int64{}, last: time.Now()}
	u.started = u.last
	var err error
	if u.keptStat, err = u.take("proc/stat", "cpu"); err != nil {
		return nil, err
	}
	if u.keptMemory, err = u.take("proc/meminfo", "Mem"); err != nil {
		return nil, err
	}
	for i := range m.NumNUMA() {
		u.memory += m.MemoryBytes(topo.NUMA(i)) >> 10
	}
	return u, u.write(nil)
}

// take removes a file, if there is one, and returns its lines that do not begin with a prefix.
func (u *use) take(file, prefix string) (kept string, err error) {
	text, err := os.ReadFile(u.n.root.Path(file))
	if err == nil {
		err = os.Remove(u.n.root.Path(file))
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			kept += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	return kept, err
}

// run updates the files until ctx ends.
func (u *use) run(ctx context.Context) {
	ticker := time.NewTicker(useInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if err := u.step(now); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot write what pods use", "node", u.n.Name)
			}
		case <-ctx.Done():
			return
		}
	}
}

// step lets the containers that run use CPU since the last step, those of best-effort pods last.
func (u *use) step(now time.Time) error {
	passed := max(0, now.Sub(u.last))
	u.last = now
	u.n.kubelet.mu.Lock()
	running := make([]hook.Container, 0, len(u.n.kubelet.containers))
	perPod := map[string]int64{}
	for _, c := range u.n.kubelet.containers {
		running = append(running, c)
		perPod[c.Pod.Cgroup]++
	}
	u.n.kubelet.mu.Unlock()
	last := func(c hook.Container) int { return strings.Count(c.Pod.Cgroup, "besteffort") }
	slices.SortFunc(running, func(a, b hook.Container) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.ID, b.ID))
	})
	left, quotas := make([]int64, len(u.busy)), map[string]int64{}
	for _, cpu := range u.m.Online().Slice() {
		left[cpu] = int64(passed)
	}
	memory := map[string]int64{}
	for _, c := range running {
		s, _, err := annotation.ParseSimulate(c.Pod.Annotations[annotation.SimulateKey])
		if err != nil { // most pods have no annotation
			s = annotation.Simulate{}
		}
		memory[c.Pod.Cgroup] = 0
		if s.Memory != nil {
			memory[c.Pod.Cgroup] = min(s.Memory.Value(), u.memory<<10)
		}
		if s.CPU == nil {
			continue
		}
		milli := min(s.CPU.MilliValue(), int64(len(u.busy))*1000)
		want := int64(float64(milli) * shareAt(s.Pattern, now) / 1000 * float64(passed))
		u.pods[c.Pod.Cgroup] += u.spend(c.Cgroup, want/perPod[c.Pod.Cgroup], int64(passed), left, quotas)
	}
	for at := range u.pods {
		if perPod[at] == 0 {
			delete(u.pods, at)
		}
	}
	return u.write(memory)
}

// shareAt returns which part of its CPU a pod uses at a time.
func shareAt(pattern string, now time.Time) float64 {
	second := float64(now.UnixMilli()%60_000) / 1000
	switch pattern {
	case annotation.SimulateSine:
		return (1 - math.Cos(2*math.Pi*second/60)) / 2
	case annotation.SimulateBurst:
		if second >= 10 {
			return 0.1
		}
	case annotation.SimulateSteps:
		return 0.25 * (1 + math.Floor(second/15))
	}
	return 1
}

// spend lets a group use CPU time, as far as its quota, those above it and its CPUs allow. left is what each CPU has
// left, quotas what groups have left.
func (u *use) spend(group string, want, passed int64, left []int64, quotas map[string]int64) int64 {
	var above []string
	for at := group; at != "." && at != "/" && at != ""; at = path.Dir(at) {
		if _, known := quotas[at]; !known {
			quotas[at] = u.quota(at, passed)
		}
		above = append(above, at)
		want = min(want, quotas[at])
	}
	text, err := u.n.tree.Read(group, "cpuset.cpus.effective")
	if err != nil {
		return 0 // the container has just ended
	}
	cpus, _, err := u.m.ParseList(text)
	if err != nil || cpus.IsEmpty() {
		return 0
	}
	spent, ids := int64(0), cpus.Slice()
	take := func(cpu int, part int64) {
		part = min(part, left[cpu])
		left[cpu] -= part
		u.busy[cpu] += part
		spent += part
	}
	for i, cpu := range ids { // evenly
		take(cpu, (want-spent)/int64(len(ids)-i))
	}
	for _, cpu := range ids { // what busy CPUs could not give
		take(cpu, want-spent)
	}
	for _, at := range above {
		quotas[at] -= spent
	}
	return spent
}

// quota returns how much CPU time a group may use in a time.
func (u *use) quota(group string, passed int64) int64 {
	var quota, period int64
	text, err := u.n.tree.Read(group, desired.QuotaV2)
	if err == nil {
		_, err = fmt.Sscan(text, &quota, &period)
	}
	if err != nil || period <= 0 {
		return math.MaxInt64 // it says max, or the group has ended
	}
	return int64(float64(quota) / float64(period) * float64(passed))
}

// write writes all files. memory is what each pod that runs has, by its group.
func (u *use) write(memory map[string]int64) error {
	var errs []error
	put := func(file, format string, args ...any) {
		errs = append(errs, overwrite(u.n.root.Path(file), fmt.Appendf(nil, format, args...)))
	}
	sum := int64(0)
	for at, used := range memory {
		sum += used
		errs = append(errs, u.writeGroup(at, used))
	}
	var cpus, online, ticks strings.Builder
	total, up := int64(0), int64(u.last.Sub(u.started))
	for i, busy := range u.busy {
		total += busy
		id, idle := u.m.CPUID(topo.CPU(i)), max(0, up-busy)
		fmt.Fprintf(&cpus, "cpu%d %018d 0 0 %018d 0 0 0 0 0 0\n", id, busy/1e7, idle/1e7)
		fmt.Fprintf(&online, " CPU%d", id)
		fmt.Fprintf(&ticks, " %018d", busy/4e6) // of a kernel with 250 Hz
	}
	idle := max(0, up*int64(len(u.busy))-total)
	put("proc/stat", "cpu  %018d 0 0 %018d 0 0 0 0 0 0\n%s%s", total/1e7, idle/1e7, cpus.String(), u.keptStat)
	put("proc/interrupts", "%s\nLOC:%s Local timer interrupts\n", online.String(), ticks.String())
	free := func(total, used int64) int64 { return max(0, total-total/50-used) } // the system uses 2 %
	available := free(u.memory, sum>>10)
	put("proc/meminfo", "MemTotal:       %d kB\nMemFree:        %018d kB\nMemAvailable:   %018d kB\n%s", u.memory,
		available, available, u.keptMemory)
	for i := range u.m.NumNUMA() {
		id, kib := u.m.NUMAID(topo.NUMA(i)), u.m.MemoryBytes(topo.NUMA(i))>>10
		rest := free(kib, int64(float64(sum>>10)*float64(kib)/float64(max(1, u.memory))))
		put(fmt.Sprintf("sys/devices/system/node/node%d/meminfo", id),
			"Node %[1]d MemTotal: %15[2]d kB\nNode %[1]d MemFree:  %15[3]d kB\nNode %[1]d MemUsed:  %15[4]d kB\n",
			id, kib, rest, kib-rest)
	}
	return errors.Join(errs...)
}

// writeGroup writes the files of a pod's group, unless it is gone.
func (u *use) writeGroup(at string, memory int64) error {
	dir := u.n.root.Cgroup(at)
	for file, text := range map[string]string{
		"cpu.stat":       fmt.Sprintf("usage_usec %018d\n", u.pods[at]/1000),
		"memory.current": fmt.Sprintf("%018d\n", memory),
		"memory.stat":    fmt.Sprintf("anon %018d\ninactive_file 0\nactive_file 0\n", memory),
	} {
		err := overwrite(filepath.Join(dir, file), []byte(text))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// overwrite writes a file from its beginning, in one write.
func overwrite(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Close())
}
