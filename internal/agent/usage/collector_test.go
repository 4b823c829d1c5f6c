package usage_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// node is a machine of four CPUs on two NUMA nodes whose files a test writes.
type node struct {
	t      testing.TB
	dir    string
	v1     bool
	groups map[string]string
	// containers are the UIDs of pods, by the group of their container.
	containers map[string]string
	c          *usage.Collector
	now        time.Time
	machine    *topo.Machine
	// glances are what was reported.
	glances []int64
}

func (n *node) Machine() *topo.Machine           { return n.machine }
func (n *node) Sampled(*usage.Sample)            {}
func (n *node) Glanced(_ time.Time, milli int64) { n.glances = append(n.glances, milli) }

// podGroups are the groups of pods, by UID, and the UIDs of containers, by group. Pods whose UID begins with be are
// best-effort.
type podGroups struct{ pods, containers map[string]string }

func (p podGroups) Groups(into map[string]string) { maps.Copy(into, p.pods) }
func (p podGroups) IsBestEffort(uid string) bool  { return strings.HasPrefix(uid, "be") }

func (p podGroups) Containers(f func(uid, group string)) {
	for at, uid := range p.containers {
		f(uid, at)
	}
}

func newNode(t testing.TB, v1 bool) *node {
	n := &node{
		t: t, dir: t.TempDir(), v1: v1, groups: map[string]string{}, containers: map[string]string{}, now: start,
	}
	n.machine = grid.Machine{Sockets: 1, Nodes: 2, Cores: 2, Threads: 1}.Build(t)
	if v1 {
		n.mkdir("sys/fs/cgroup/cpuset")
	} else {
		n.write("sys/fs/cgroup/cgroup.controllers", "cpu memory")
	}
	n.cpus(0, 0, 0, 0)
	n.memory(1000, 400, 600)
	c, err := usage.New(usage.Options{
		Root: host.Root{Dir: n.dir}, Pods: podGroups{n.groups, n.containers}, Agent: n, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.c = c
	return n
}

func (n *node) mkdir(name string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.dir, name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) write(name, text string) {
	n.t.Helper()
	n.mkdir(filepath.Dir(name))
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// cpus sets the CPU time of each CPU, in seconds.
func (n *node) cpus(seconds ...float64) {
	n.t.Helper()
	var sum float64
	lines := ""
	for i, s := range seconds {
		sum += s
		lines += fmt.Sprintf("cpu%d %d 0 0 999 5 0 0 7 0 0\n", i, int64(s*100))
	}
	n.write("proc/stat", fmt.Sprintf("cpu  %d 0 0 9999 5 0 0 7 0 0\n%sintr 5 6 7\n", int64(sum*100), lines))
}

// memory sets the memory of the node in KiB, half of it on each NUMA node.
func (n *node) memory(total, free, available int64) {
	n.t.Helper()
	n.write("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemFree:  %d kB\nMemAvailable: %d kB\nBuffers: 1 kB\n",
		total, free, available))
	for i := range 2 {
		n.write(fmt.Sprintf("sys/devices/system/node/node%d/meminfo", i), fmt.Sprintf("Node %d MemTotal: %d kB\n"+
			"Node %d MemFree: %d kB\nNode %d FilePages: 60 kB\nNode %d Shmem: 10 kB\nNode %d SReclaimable: 5 kB\n",
			i, total/2, i, free/2, i, i, i))
	}
}

// pod sets what a pod has used: CPU time, memory with cache, and the cache.
func (n *node) pod(uid string, seconds float64, current, cache int64) {
	n.t.Helper()
	at := "kubepods/pod" + uid
	n.groups[uid] = at
	if n.v1 {
		n.write("sys/fs/cgroup/cpuacct/"+at+"/cpuacct.usage", fmt.Sprintf("%d\n", int64(seconds*1e9)))
		n.write("sys/fs/cgroup/cpu/"+at+"/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
		n.write("sys/fs/cgroup/memory/"+at+"/memory.usage_in_bytes", fmt.Sprintf("%d\n", current))
		n.write("sys/fs/cgroup/memory/"+at+"/memory.stat", fmt.Sprintf(
			"cache 7\ninactive_file 1\nactive_file 1\ntotal_inactive_file %d\ntotal_active_file %d\n", cache-1, 1))
		return
	}
	n.write("sys/fs/cgroup/"+at+"/cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec 1\n", int64(seconds*1e6)))
	n.write("sys/fs/cgroup/"+at+"/memory.current", fmt.Sprintf("%d\n", current))
	n.write("sys/fs/cgroup/"+at+"/memory.stat", fmt.Sprintf("anon 1\ninactive_file %d\nactive_file %d\n", cache-1, 1))
}

// tick measures a time later.
func (n *node) tick(later time.Duration) {
	n.now = n.now.Add(later)
	n.c.Tick(n.now)
}

// sample is a copy of the latest Sample, the zero Sample without.
func (n *node) sample() (out usage.Sample) {
	n.c.Read(func(s *usage.Sample) {
		out = *s
		out.Pods, out.Hosts, out.Throttled = maps.Clone(s.Pods), maps.Clone(s.Hosts), maps.Clone(s.Throttled)
		out.NUMA = append([]usage.Amounts(nil), s.NUMA...)
	})
	return out
}

func inBothVersions(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	for name, v1 := range map[string]bool{"v1": true, "v2": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newNode(t, v1))
		})
	}
}

func TestWhatANodeUses(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		n.pod("a", 10, 5000, 2000)
		n.tick(0)
		if got := n.sample(); !got.Time.IsZero() {
			t.Errorf("after one tick: %+v, want none", got)
		}
		n.cpus(1, 0.5, 0.5, 0)
		n.pod("a", 10.75, 9000, 2000)
		n.write("proc/pressure/memory",
			"some avg10=1.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.05 avg60=0.00 avg300=0.00 total=1\n")
		n.tick(time.Second)
		want := usage.Sample{
			Time:     start.Add(time.Second),
			Node:     usage.Amounts{MilliCPU: 2000, MemoryBytes: 400 << 10, CacheBytes: 200 << 10},
			Capacity: usage.Amounts{MilliCPU: 4000, MemoryBytes: 1000 << 10},
			Average:  usage.Amounts{MilliCPU: 2000, MemoryBytes: 400 << 10, CacheBytes: 200 << 10},
			System:   usage.Amounts{MilliCPU: 1250, MemoryBytes: 400<<10 - 3000, CacheBytes: 200<<10 - 2000},
			Pods:     map[string]usage.Amounts{"a": {MilliCPU: 750, MemoryBytes: 3000, CacheBytes: 2000}},
			Hosts:    map[string]usage.Amounts{}, Throttled: map[string]time.Duration{},
			NUMA: []usage.Amounts{
				{MilliCPU: 1500, MemoryBytes: 245 << 10, CacheBytes: 55 << 10},
				{MilliCPU: 500, MemoryBytes: 245 << 10, CacheBytes: 55 << 10},
			},
			MemoryPressure: 5,
		}
		if diff := cmp.Diff(want, n.sample()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for range 5 { // the memory of each pod is read in one of five ticks
			n.tick(time.Second)
		}
		if got := n.sample().Pods["a"]; got.MemoryBytes != 7000 || got.MilliCPU != 0 {
			t.Errorf("after six seconds: %+v, want 7000 bytes and no CPU", got)
		}
	})
}

// TestWhatCannotBeReadIsNotGuessed goes through files that are missing, cut off, or of another time.
func TestWhatCannotBeReadIsNotGuessed(t *testing.T) {
	t.Parallel()
	remove := func(n *node, at string) {
		if err := os.RemoveAll(filepath.Join(n.dir, at)); err != nil {
			n.t.Fatal(err)
		}
	}
	podAt := func(n *node, second float64) usage.Amounts {
		n.pod("a", second, 5000, 2000)
		n.cpus(second, 0, 0, 0)
		n.tick(time.Second)
		return n.sample().Pods["a"]
	}
	tests := map[string]func(t *testing.T, n *node){
		"a pod vanishes between two reads": func(t *testing.T, n *node) {
			delete(n.groups, "a")
			n.tick(time.Second)
			if got := n.sample(); len(got.Pods) != 0 {
				t.Errorf("pods %+v, want none", got.Pods)
			}
		},
		"the CPU time of a pod goes back": func(t *testing.T, n *node) {
			if got := podAt(n, 0); got != (usage.Amounts{}) {
				t.Errorf("got %+v, want no use", got)
			}
			if got := podAt(n, 0.5); got.MilliCPU != 500 {
				t.Errorf("a second later: %+v, want 500 milli", got)
			}
		},
		"a pod's group is made anew at another path": func(t *testing.T, n *node) {
			n.pod("b", 500, 1, 1)
			n.groups["a"] = n.groups["b"]
			n.tick(time.Second)
			if got := n.sample().Pods["a"]; got != (usage.Amounts{}) {
				t.Errorf("got %+v, want no use of a group that was not read before", got)
			}
		},
		"a counter is empty": func(t *testing.T, n *node) {
			name := "sys/fs/cgroup/kubepods/poda/cpu.stat"
			if n.v1 {
				name = "sys/fs/cgroup/cpuacct/kubepods/poda/cpuacct.usage"
			}
			n.write(name, "")
			n.tick(time.Second)
			if got := n.sample(); len(got.Pods) != 0 || !got.Time.Equal(n.now) {
				t.Errorf("got %+v, want a sample without the pod", got)
			}
		},
		"a counter is not a number": func(t *testing.T, n *node) {
			name, text := "sys/fs/cgroup/kubepods/poda/cpu.stat", "usage_usec NaN\n"
			if n.v1 {
				name, text = "sys/fs/cgroup/cpuacct/kubepods/poda/cpuacct.usage", "-5\n"
			}
			n.write(name, text)
			n.tick(time.Second)
			if got := n.sample(); len(got.Pods) != 0 {
				t.Errorf("pods %+v, want none", got.Pods)
			}
		},
		"a counter of more digits than any has": func(t *testing.T, n *node) {
			name, text := "sys/fs/cgroup/kubepods/poda/cpu.stat", "usage_usec "
			if n.v1 {
				name, text = "sys/fs/cgroup/cpuacct/kubepods/poda/cpuacct.usage", ""
			}
			n.write(name, text+strings.Repeat("9", 30)+"\n")
			n.tick(time.Second)
			if got := n.sample(); len(got.Pods) != 0 {
				t.Errorf("pods %+v, want none", got.Pods)
			}
		},
		"a new pod has no memory files": func(t *testing.T, n *node) {
			n.pod("b", 1, 1, 1)
			at := "sys/fs/cgroup/kubepods/podb/memory.stat"
			if n.v1 {
				at = "sys/fs/cgroup/memory/kubepods/podb/memory.stat"
			}
			remove(n, at)
			n.tick(time.Second)
			n.tick(time.Second)
			if _, ok := n.sample().Pods["b"]; ok {
				t.Error("it is in the sample, want it left out")
			}
		},
		"more cache than memory": func(t *testing.T, n *node) {
			n.pod("b", 1, 10, 500)
			n.tick(time.Second)
			n.tick(time.Second)
			if got := n.sample().Pods["b"]; got.MemoryBytes != 0 || got.CacheBytes != 10 {
				t.Errorf("got %+v, want 10 bytes of cache", got)
			}
		},
		"pods use more than the node": func(t *testing.T, n *node) {
			n.pod("a", 1000, 5<<30, 1)
			n.cpus(1.1, 0, 0, 0)
			n.tick(time.Second)
			if got := n.sample().System; got.MilliCPU != 0 {
				t.Errorf("system %+v, want no CPU and nothing negative", got)
			}
		},
		"the clock goes back": func(t *testing.T, n *node) {
			before := n.sample().Time
			n.tick(-time.Hour)
			if got := n.sample().Time; !got.Equal(before) {
				t.Errorf("a sample of %v, want that of %v", got, before)
			}
			n.cpus(2, 0, 0, 0)
			n.tick(time.Second)
			if got := n.sample(); !got.Time.Equal(n.now) || got.Node.MilliCPU != 1000 {
				t.Errorf("a second later: %+v", got)
			}
		},
		"the clock jumps forward by a day": func(t *testing.T, n *node) {
			n.cpus(3, 0, 0, 0)
			n.tick(24 * time.Hour)
			if got := n.sample().Node.MilliCPU; got != 0 {
				t.Errorf("%d milli, want the average over the day: 0", got)
			}
		},
		"the CPU time of the node goes back": func(t *testing.T, n *node) {
			before := n.sample().Time
			n.cpus(0, 0, 0, 0)
			n.tick(time.Second)
			if got := n.sample().Time; !got.Equal(before) {
				t.Errorf("a sample of %v, want that of %v", got, before)
			}
		},
		"a CPU goes offline": func(t *testing.T, n *node) {
			n.cpus(2, 0, 0)
			n.tick(time.Second)
			got := n.sample()
			if got.Capacity.MilliCPU != 3000 || got.NUMA[0].MilliCPU != 1000 {
				t.Errorf("capacity %+v, NUMA nodes %+v", got.Capacity, got.NUMA)
			}
		},
		"/proc/stat has no CPUs": func(t *testing.T, n *node) {
			before := n.sample().Time
			n.write("proc/stat", "btime 1735689600\n")
			n.tick(time.Second)
			if got := n.sample().Time; !got.Equal(before) {
				t.Errorf("a sample of %v, want that of %v", got, before)
			}
		},
		"/proc/meminfo has no MemAvailable": func(t *testing.T, n *node) {
			before := n.sample().Time
			n.write("proc/meminfo", "MemTotal: 5 kB\nMemFree: 3 kB\n")
			n.tick(time.Second)
			if got := n.sample().Time; !got.Equal(before) {
				t.Errorf("a sample of %v, want that of %v", got, before)
			}
		},
		"a NUMA node without memory files": func(t *testing.T, n *node) {
			before := n.sample().NUMA[1]
			remove(n, "sys/devices/system/node/node1")
			n.write("proc/pressure/memory", "full avg10=nan\n")
			n.tick(time.Second)
			got := n.sample()
			if !got.Time.Equal(n.now) || got.NUMA[1].MemoryBytes != before.MemoryBytes || got.MemoryPressure != 0 {
				t.Errorf("got %+v", got)
			}
		},
		"an application of the host has no cgroup": func(t *testing.T, n *node) {
			n.c.SetHosts([]usage.Host{{Name: "nginx", Group: "host/nginx"}, {Name: "same", Group: "kubepods/poda"}})
			n.tick(time.Second)
			podAt(n, 1.5)
			got := n.sample()
			if len(got.Hosts) != 1 || got.Hosts["same"].MilliCPU != 500 {
				t.Errorf("applications %+v, want one", got.Hosts)
			}
			n.c.SetHosts(nil)
			n.tick(time.Second)
			if got := n.sample().Hosts; len(got) != 0 {
				t.Errorf("applications %+v, want none", got)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothVersions(t, func(t *testing.T, n *node) {
				n.pod("a", 0, 5000, 2000)
				n.tick(0)
				n.pod("a", 1, 5000, 2000)
				n.cpus(1, 0, 0, 0)
				n.tick(time.Second)
				if got := n.sample().Pods["a"].MilliCPU; got != 1000 {
					t.Fatalf("at the beginning the pod uses %d milli, want 1000", got)
				}
				test(t, n)
			})
		})
	}
}

func TestARootWithoutCgroupsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := usage.New(usage.Options{Root: host.Root{Dir: t.TempDir()}, Clock: clock.RealClock{}})
	if err == nil || !strings.Contains(err.Error(), "no cgroup hierarchy is mounted") {
		t.Errorf("got %v", err)
	}
}

// A glance reports what others use than the pods that yield and the system, since the last glance.
func TestAGlanceSeesALoadOfOthers(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		glance := func(later time.Duration, want ...int64) {
			t.Helper()
			n.now, n.glances = n.now.Add(later), nil
			n.c.Glance(n.now)
			if !slices.Equal(n.glances, want) {
				t.Errorf("got %v, want %v", n.glances, want)
			}
		}
		n.pod("be", 0, 100, 10)
		n.pod("ls", 0, 100, 10)
		glance(0) // nothing is known
		n.tick(0)
		n.cpus(1, 1, 0, 0)
		n.pod("be", 1, 100, 10)
		n.tick(time.Second) // the system uses 1 CPU
		glance(0)           // the pod is new
		n.cpus(1.5, 1.5, 0.5, 0)
		n.pod("be", 1.5, 100, 10)
		glance(500*time.Millisecond, 1000)
		n.cpus(1.75, 1.5, 0.5, 0)
		n.pod("be", 1.75, 100, 10)
		glance(500*time.Millisecond, 0)
		n.write("proc/stat", "cpu\n")
		glance(500 * time.Millisecond)
		if got := n.sample(); got.Pods["be"].MilliCPU != 1000 || got.Node.MilliCPU != 2000 {
			t.Errorf("the Sample has changed: %+v", got)
		}
		n.cpus(2, 2, 2, 2)
		delete(n.groups, "be")
		n.tick(500 * time.Millisecond)
		glance(0, 1000) // of 4 CPUs, of which the tick took 3 for the system
	})
}

// The tick that reads a pod for the first time does not know what it has used since the last one.
func TestWhatANewBestEffortPodUsesIsNotThatOfTheSystem(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		system := func(seconds float64, want int64) {
			t.Helper()
			n.cpus(seconds, seconds, seconds, seconds)
			if n.tick(time.Second); n.sample().System.MilliCPU != want {
				t.Errorf("the system uses %d, want %d", n.sample().System.MilliCPU, want)
			}
		}
		n.tick(0)
		system(0.25, 1000)
		n.pod("be", 3, 100, 10)
		system(1.25, 1000) // of 4, of which the pod used 3
		n.pod("be", 6, 100, 10)
		system(2.25, 1000)
		n.pod("ls", 2, 100, 10) // another pod does not yield: what it uses counts at once
		n.pod("be", 7, 100, 10)
		system(3.25, 3000)
		n.groups["be"] = "gone" // it cannot be read: what it uses counts from the second time on
		n.pod("ls", 2, 100, 10)
		system(4.25, 3000)
		system(5.25, 4000)
	})
}

// TestATickAllocatesNothingForAPod compares ticks with 250 pods and with none.
func TestATickAllocatesNothingForAPod(t *testing.T) { // not parallel: it counts allocations
	for name, v1 := range map[string]bool{"v1": true, "v2": false} {
		allocs := func(pods int) float64 {
			n := newNode(t, v1)
			for i := range pods {
				n.pod(fmt.Sprintf("p%03d", i), 1, 5000, 2000)
			}
			for range 20 {
				n.tick(time.Second)
			}
			if got := len(n.sample().Pods); got != pods {
				t.Fatalf("%s: %d pods are measured, want %d", name, got, pods)
			}
			return testing.AllocsPerRun(10, func() { n.tick(time.Second) })
		}
		if none, many := allocs(0), allocs(250); many > none {
			t.Errorf("%s: %v allocations a tick with 250 pods, %v with none", name, many, none)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	const pods = 250
	for name, v1 := range map[string]bool{"v1": true, "v2": false} {
		b.Run(fmt.Sprintf("cgroup=%s/pods=%d", name, pods), func(b *testing.B) {
			n := newNode(b, v1)
			for i := range pods {
				n.pod(fmt.Sprintf("p%03d", i), 1, 5000, 2000)
			}
			n.tick(time.Second)
			b.ReportAllocs()
			for b.Loop() {
				n.tick(time.Second)
			}
		})
	}
}
