package usage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// BenchmarkTickOfTheKernel measures the files of this machine's kernel, with 250 groups that it makes and removes.
func BenchmarkTickOfTheKernel(b *testing.B) {
	const pods = 250
	layout, err := host.Cgroups(host.Root{Dir: "/"})
	if err != nil {
		b.Skip(err)
	}
	trees := []string{""}
	if layout.Version == 1 {
		trees = []string{"cpuacct", "memory"}
	}
	base, groups := fmt.Sprintf("tenon-bench-%d", os.Getpid()), map[string]string{}
	for _, tree := range trees {
		for i := range pods {
			name := fmt.Sprintf("p%03d", i)
			groups[name] = filepath.Join(base, name)
			dir := filepath.Join("/sys/fs/cgroup", tree, groups[name])
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = os.Remove(dir); _ = os.Remove(filepath.Dir(dir)) })
		}
	}
	m := grid.Machine{Sockets: 1, Nodes: 1, Cores: 2, Threads: 1}.Build(b)
	c, err := usage.New(usage.Options{
		Root: host.Root{Dir: "/"}, Pods: podGroups{pods: groups}, Agent: &node{machine: m}, Clock: clock.RealClock{},
	})
	if err != nil {
		b.Fatal(err)
	}
	if layout.Version == 2 {
		for _, dir := range []string{"", base} {
			file := filepath.Join("/sys/fs/cgroup", dir, "cgroup.subtree_control")
			if err := os.WriteFile(file, []byte("+cpu +memory"), 0o644); err != nil {
				b.Skip(err)
			}
		}
	}
	now := start
	for range 20 {
		now = now.Add(time.Second)
		c.Tick(now)
	}
	c.Read(func(s *usage.Sample) {
		if len(s.Pods) != pods {
			b.Fatalf("%d groups are measured, want %d", len(s.Pods), pods)
		}
	})
	b.ReportAllocs()
	before := processTime()
	for b.Loop() {
		now = now.Add(time.Second)
		c.Tick(now)
	}
	b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op")
}

// processTime is the CPU time that this process has used: other work on the machine does not change it.
func processTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
