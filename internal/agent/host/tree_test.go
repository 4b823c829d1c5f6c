package host_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const (
	cpu  = "sys/devices/system/cpu/"
	node = "sys/devices/system/node/"
)

// small is a machine of one socket, two cores of two threads and two NUMA nodes.
func small() map[string]string {
	files := map[string]string{
		cpu + "present": "0-3", cpu + "online": "0-3",
		node + "node0/cpulist": "0,2", node + "node0/distance": "10 21",
		node + "node0/meminfo": "Node 0 MemTotal: 1048576 kB",
		node + "node1/cpulist": "1,3", node + "node1/distance": "21 10",
		node + "node1/meminfo":                                 "Node 1 MemTotal: 2097152 kB",
		node + "node1/hugepages/hugepages-2048kB/nr_hugepages": "16",
		"proc/cpuinfo":                                         "vendor_id\t: AuthenticAMD",
	}
	for _, c := range []struct{ id, core, siblings string }{
		{"0", "0", "0,2"},
		{"1", "1", "1,3"},
		{"2", "0", "0,2"},
		{"3", "1", "1,3"},
	} {
		dir := cpu + "cpu" + c.id + "/topology/"
		files[dir+"core_id"], files[dir+"physical_package_id"], files[dir+"thread_siblings_list"] = c.core, "0",
			c.siblings
		files[cpu+"cpu"+c.id+"/cache/index3/level"] = "3"
		files[cpu+"cpu"+c.id+"/cache/index3/shared_cpu_list"] = "0-3"
	}
	return files
}

func write(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	dir := testkit.Dir(t)
	for name, text := range files {
		path := filepath.Join(dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Check(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return host.Root{Dir: dir}
}

func TestSmallMachine(t *testing.T) {
	t.Parallel()
	got, notes, err := host.Spec(write(t, small()), "arm64")
	testkit.Check(t, err)
	want := topo.Spec{Arch: "amd64"}
	for id := range 4 {
		want.CPUs = append(want.CPUs, topo.CPUSpec{
			ID: id, Core: id % 2, L3: 0, NUMA: id % 2,
		})
	}
	want.NUMA = []topo.NUMASpec{
		{ID: 0, MemoryBytes: 1 << 30, Distances: []int{10, 21}},
		{ID: 1, MemoryBytes: 2 << 30, Distances: []int{21, 10}, Hugepages: map[int64]int64{2 << 20: 16}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(notes) > 0 {
		t.Errorf("notes = %q, want none", notes)
	}
}

func TestWhatFilesLeaveOpenIsFilledByRule(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(map[string]string)
		check  func(*topo.Machine) bool
		note   string // a part of the only note; "" = no note
	}{
		"values that end in NUL and newline are read": {
			change: func(f map[string]string) { f[cpu+"online"] = "0-3\n\x00"; f[node+"node0/cpulist"] = "0,2\x00" },
			check:  func(m *topo.Machine) bool { s := m.Online(); return s.Len() == 4 },
		},
		"maps serve where lists are missing": {
			change: func(f map[string]string) {
				for _, id := range []string{"0", "1", "2", "3"} {
					dir := cpu + "cpu" + id + "/topology/"
					f[dir+"thread_siblings"] = map[string]string{
						"0,2": "00000005",
						"1,3": "0000000a",
					}[f[dir+"thread_siblings_list"]]
					delete(f, dir+"thread_siblings_list")
				}
				delete(f, node+"node0/cpulist")
				f[node+"node0/cpumap"] = "5"
			},
			check: func(m *topo.Machine) bool { return m.NumCores() == 2 && m.NumNUMA() == 2 },
		},
		"caches have the kernel's ids, or their lowest CPU's where an id is none": {
			change: func(f map[string]string) {
				for c, cache := range map[string][2]string{
					"0": {"9", "0,2"}, "2": {"9", "0,2"},
					"1": {"4294967295", "1,3"}, "3": {"4294967295", "1,3"},
				} {
					dir := cpu + "cpu" + c + "/cache/index3/"
					f[dir+"id"], f[dir+"shared_cpu_list"] = cache[0], cache[1]
				}
			},
			check: func(m *topo.Machine) bool {
				return m.NumL3() == 2 && m.L3ID(m.L3Of(2)) == 9 && m.L3ID(m.L3Of(3)) == 1
			},
		},
		"without lists of present and online CPUs the folders count": {
			change: func(f map[string]string) {
				delete(f, cpu+"present")
				delete(f, cpu+"online")
				f[cpu+"cpu3/online"] = "0"
			},
			check: func(m *topo.Machine) bool { s := m.Online(); return s.Len() == 3 && m.NumCPUs() == 4 },
		},
		"a CPU that is possible but not present is not a CPU": {
			change: func(f map[string]string) { f[cpu+"cpu9/online"] = "0"; f[node+"node0/cpulist"] = "0,2,9" },
			check:  func(m *topo.Machine) bool { return m.NumCPUs() == 4 },
		},
		"a package id of -1 gives way to the core siblings": {
			change: func(f map[string]string) {
				for id, siblings := range map[string]string{"0": "0,2", "1": "1,3", "2": "0,2", "3": "1,3"} {
					f[cpu+"cpu"+id+"/topology/physical_package_id"] = "-1"
					f[cpu+"cpu"+id+"/topology/core_siblings_list"] = siblings
				}
			},
			check: func(m *topo.Machine) bool { return m.NumSockets() == 2 },
			note:  "4 CPUs without a package id",
		},
		"missing distances are 10 and 20": {
			change: func(f map[string]string) { delete(f, node+"node0/distance"); delete(f, node+"node1/distance") },
			check:  func(m *topo.Machine) bool { return m.Distance(0, 0) == 10 && m.Distance(0, 1) == 20 },
		},
		"a machine without NUMA folders is one node with all the memory": {
			change: func(f map[string]string) {
				maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, node) })
				f["proc/meminfo"] = "MemTotal: 4194304 kB"
			},
			check: func(m *topo.Machine) bool { return m.NumNUMA() == 1 && m.MemoryBytes(0) == 4<<30 },
			note:  "has no NUMA nodes",
		},
		"distances that cannot be parsed cost the distances alone": {
			change: func(f map[string]string) { f[node+"node0/distance"] = "0 21" },
			check:  func(m *topo.Machine) bool { return m.NumNUMA() == 2 && m.Distance(0, 1) == 20 },
			note:   `distance "0": want 1 to 255: 10 and 20 are assumed`,
		},
		"CPUs of a node without a folder count to node 0": {
			change: func(f map[string]string) {
				maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, node+"node0/") })
				f[node+"node1/distance"] = "10"
				f["proc/meminfo"] = "MemTotal: 3145728 kB"
			},
			check: func(m *topo.Machine) bool {
				return m.NumNUMA() == 2 && m.MemoryBytes(0) == 1<<30 && m.Distance(0, 1) == 20
			},
			note: "2 CPUs without a NUMA node",
		},
		"a machine of memory alone on a node keeps that node": {
			change: func(f map[string]string) {
				f[node+"node0/distance"], f[node+"node1/distance"] = "10 21 40", "21 10 40"
				f[node+"node7/distance"], f[node+"node7/meminfo"], f[node+"node7/cpulist"] = "40 40 10",
					"Node 7 MemTotal: 8388608 kB", ""
			},
			check: func(m *topo.Machine) bool {
				return m.NumNUMA() == 3 && len(m.CPUNodes()) == 2 && m.NUMAID(2) == 7 && m.Distance(0, 2) == 40
			},
		},
		"cpu_capacity distinguishes big and little cores": {
			change: func(f map[string]string) {
				for id, capacity := range map[string]string{"0": "1024", "2": "1024", "1": "430", "3": "430"} {
					f[cpu+"cpu"+id+"/cpu_capacity"] = capacity
				}
			},
			check: func(m *topo.Machine) bool {
				return m.KindOf(0) == topo.Performance &&
					m.KindOf(1) == topo.Efficiency
			},
		},
		"the boot isolates CPUs, also one that is not there": {
			change: func(f map[string]string) { f[cpu+"isolated"], f[cpu+"nohz_full"] = "1,3-9\n", "2" },
			check: func(m *topo.Machine) bool {
				return m.Isolated() == cpuset.Of(1, 3) && m.NoTick() == cpuset.Of(2)
			},
		},
		"the boot isolates no CPU": {
			change: func(f map[string]string) { f[cpu+"isolated"], f[cpu+"nohz_full"] = "\n", "(null)\n" },
			check:  func(m *topo.Machine) bool { return m.Isolated() == cpuset.Set{} && m.NoTick() == cpuset.Set{} },
		},
		"a base frequency alone does not make a machine hybrid": {
			change: func(f map[string]string) {
				for id, khz := range map[string]string{"0": "2700000", "2": "2700000", "1": "2100000", "3": "2100000"} {
					f[cpu+"cpu"+id+"/cpufreq/base_frequency"] = khz
				}
			},
			check: func(m *topo.Machine) bool { return m.KindOf(0) == topo.Uniform },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := small()
			test.change(files)
			r, err := host.Read(write(t, files), "")
			testkit.Check(t, err)
			if !test.check(r.Machine) {
				t.Errorf("the machine is not as the rule says: %+v", r.Machine.Spec())
			}
			switch {
			case test.note == "" && len(r.Notes) > 0:
				t.Errorf("notes = %q, want none", r.Notes)
			case test.note != "" && (len(r.Notes) == 0 || !strings.Contains(strings.Join(r.Notes, "\n"), test.note)):
				t.Errorf("notes = %q, want one that says %q", r.Notes, test.note)
			}
		})
	}
}

func TestCorruptFilesAreNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file, text string
		want       string
	}{
		"an online list that is not a list": {cpu + "online", "0-", `cpu list item "0-"`},
		"isolated CPUs that are not a list": {cpu + "isolated", "domain,3", `cpu list item "domain"`},
		"CPUs without a tick that are not a list": {
			cpu + "nohz_full", "3-1", "the end is below the start",
		},
		"a reversed range": {cpu + "present", "3-1", "the end is below the start"},
		"no CPU online":    {cpu + "online", "9", "no CPU that is present is online"},
		"a package id that is not a number": {
			cpu + "cpu1/topology/physical_package_id", "one",
			`want one integer, got "one"`,
		},
		"a package id out of range": {
			cpu + "cpu1/topology/physical_package_id", "99999999999",
			"out of range",
		},
		"siblings without the CPU itself": {
			cpu + "cpu2/topology/thread_siblings_list", "0",
			"does not name CPU 2 itself",
		},
		"siblings that are not mutual": {
			cpu + "cpu0/topology/thread_siblings_list", "0-1",
			"names CPU 1, whose own siblings do not name CPU 0",
		},
		"a CPU on two NUMA nodes": {
			node + "node1/cpulist", "0-1,3",
			"names CPU 0, which node0 names too",
		},
		"a meminfo without a total": {
			node + "node0/meminfo", "Node 0 MemFree: 1 kB",
			"has no line MemTotal",
		},
		"a meminfo in other units": {
			node + "node0/meminfo", "Node 0 MemTotal: 1 GB",
			"want a number of kB",
		},
		"a negative number of huge pages": {
			node + "node1/hugepages/hugepages-2048kB/nr_hugepages", "-1",
			"is negative",
		},
		"a cache level that is not a number": {cpu + "cpu0/cache/index3/level", "L3", "want one integer"},
		"a cache map with a word that is not hexadecimal": {
			cpu + "cpu0/cache/index3/shared_cpu_list", "zz",
			`cpu list item "zz"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := small()
			files[test.file] = test.text
			root := write(t, files)
			_, err := host.Read(root, "")
			if err == nil {
				t.Fatalf("Read accepted %s = %q", test.file, test.text)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %q, want it to say %q", err, test.want)
			}
			if name := strings.TrimSuffix(test.file, "_list"); !strings.Contains(err.Error(), filepath.Dir(name)) {
				t.Errorf("error = %q, want it to name %s", err, test.file)
			}
		})
	}
}

func TestAPipeInPlaceOfAFileIsAnError(t *testing.T) {
	t.Parallel()
	files := small()
	delete(files, cpu+"online")
	root := write(t, files)
	testkit.Check(t, syscall.Mkfifo(root.Path(cpu+"online"), 0o600))
	if _, err := host.Read(root, ""); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("Read = %v, want that the pipe is not a regular file", err)
	}
}

func TestCoreOnTwoNUMANodesIsRefused(t *testing.T) {
	t.Parallel()
	files := small()
	files[node+"node0/cpulist"], files[node+"node1/cpulist"] = "0-1", "2-3"
	_, err := host.Read(write(t, files), "")
	if err == nil || !strings.Contains(err.Error(), "is on NUMA nodes 0 and 1") {
		t.Errorf("error = %v, want a core on two NUMA nodes to be refused", err)
	}
}

func TestNothingOutsideOfTheRootIsRead(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "online")
	testkit.Check(t, os.WriteFile(secret, []byte("0"), 0o644))
	for name, target := range map[string]string{
		"an absolute link": secret,
		"a relative link":  "../../../../../../../../../../../../../../.." + secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := write(t, small())
			testkit.Check(t, os.Remove(root.Path("sys/devices/system/cpu/online")))
			testkit.Check(t, os.Symlink(target, root.Path("sys/devices/system/cpu/online")))
			if r, err := host.Read(root, ""); err == nil {
				s := r.Machine.Online()
				t.Errorf("Read followed a link out of its root: online %v", s)
			}
		})
	}
}

func TestMissingRootIsNamed(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"a folder that is not there": "/does/not/exist",
		"an empty folder":            t.TempDir(),
	} {
		if _, err := host.Read(host.Root{Dir: dir}, ""); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error = %v, want one that names it", name, err)
		}
	}
}

func TestCgroupLayoutIsDetected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files []string
		want  host.Layout
		bad   bool
	}{
		"v2 under systemd": {
			[]string{"cgroup.controllers", "kubepods.slice/cgroup.procs"},
			host.Layout{Version: 2, Driver: host.Systemd},
			false,
		},
		"v2 with cgroupfs": {
			[]string{"cgroup.controllers", "kubepods/cgroup.procs"},
			host.Layout{Version: 2, Driver: host.Cgroupfs},
			false,
		},
		"v2 before the kubelet started": {[]string{"cgroup.controllers"}, host.Layout{Version: 2}, false},
		"v1": {
			[]string{"cpuset/cpuset.cpus", "cpuset/kubepods/tasks"},
			host.Layout{Version: 1, Driver: host.Cgroupfs},
			false,
		},
		"hybrid: the cpuset hierarchy counts": {
			[]string{"cpuset/cpuset.cpus", "cgroup.controllers"},
			host.Layout{Version: 1},
			false,
		},
		"neither": {[]string{"memory/tasks"}, host.Layout{}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for _, f := range test.files {
				files["sys/fs/cgroup/"+f] = ""
			}
			got, err := host.Cgroups(write(t, files))
			if (err != nil) != test.bad || got != test.want {
				t.Errorf("Cgroups = %+v, %v, want %+v, an error: %v", got, err, test.want, test.bad)
			}
		})
	}
}

func TestKubeletCPUState(t *testing.T) {
	t.Parallel()
	const file = "var/lib/kubelet/cpu_manager_state"
	tests := map[string]struct {
		text string
		want host.CPUState
		bad  string
		// CPUs that are given twice.
		several, pool []int
	}{
		"version 2": {
			text: `{"policyName":"static","defaultCpuSet":"0-1,6-7","entries":{"u1":{"b":"4-5","a":"2-3"}},` +
				`"checksum":7}`,
			want: host.CPUState{
				Policy: "static", Default: []int{0, 1, 6, 7}, Pods: map[string][]int{"u1": {2, 3, 4, 5}},
				Containers: map[string]map[string][]int{"u1": {"a": {2, 3}, "b": {4, 5}}},
			},
		},
		"version 3 counts the CPUs of the pod, not only of its containers": {
			text: `{"policyName":"static","defaultCpuSet":"0-1","entries":{"u1":{"a":"2-3"}},` +
				`"podEntries":{"u1":{"cpuSet":"2-5"}}}`,
			want: host.CPUState{
				Policy: "static", Default: []int{0, 1}, Pods: map[string][]int{"u1": {2, 3, 4, 5}},
				Containers: map[string]map[string][]int{"u1": {host.WholePod: {2, 3, 4, 5}}},
			},
		},
		"an init container's CPUs serve another container of its pod": {
			text: `{"policyName":"static","entries":{"u1":{"init":"2-3","a":"2"}}}`,
			want: host.CPUState{
				Policy: "static", Pods: map[string][]int{"u1": {2, 3}},
				Containers: map[string]map[string][]int{"u1": {"init": {2, 3}, "a": {2}}},
			},
		},
		"two pods with one CPU, which stands as the kubelet goes by it": {
			text: `{"policyName":"static","entries":{"u1":{"a":"2-3"},"u2":{"a":"3"}}}`,
			want: host.CPUState{
				Policy: "static", Pods: map[string][]int{"u1": {2, 3}, "u2": {3}},
				Containers: map[string]map[string][]int{"u1": {"a": {2, 3}}, "u2": {"a": {3}}},
			},
			several: []int{3},
		},
		"a pod with a CPU of the pool": {
			text: `{"policyName":"static","defaultCpuSet":"0-2","entries":{"u1":{"a":"2-3"}}}`,
			want: host.CPUState{
				Policy: "static", Default: []int{0, 1, 2}, Pods: map[string][]int{"u1": {2, 3}},
				Containers: map[string]map[string][]int{"u1": {"a": {2, 3}}},
			},
			pool: []int{2},
		},
		"version 1, by container id, is refused": {
			text: `{"policyName":"static","defaultCpuSet":"0-3","entries":{"0123": "4-5"}}`,
			bad:  file + `: entries["0123"]: is of version 1, by container id; versions 2 to 4 are read`,
		},
		"a checksum of 0, which the kubelet takes too": {
			text: `{"policyName":"static","entries":{"u1":{"a":"2"}},"checksum":0}`,
			want: host.CPUState{
				Policy: "static", Pods: map[string][]int{"u1": {2}},
				Containers: map[string]map[string][]int{"u1": {"a": {2}}},
			},
		},
		"two versions at once": {
			text: `{"policyName":"static","entries":{"0123":"4-5","u1":{"a":"2"}}}`,
			bad:  `entries["0123"]: is of version 1`,
		},
		"an entry of no version": {
			text: `{"policyName":"static","entries":{"0123":[4,5]}}`,
			bad:  `entries["0123"]: want containers with CPU lists`,
		},
		"torn":      {text: `{"policyName":"sta`, bad: file},
		"no policy": {text: `{}`, bad: "has no policyName"},
		"a bad list": {
			text: `{"policyName":"static","entries":{"u":{"c":"5-4"}}}`,
			bad:  `entries["u"]["c"]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := host.ReadCPUState(write(t, map[string]string{file: test.text}))
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error = %v, want one that says %q", err, test.bad)
				}
				return
			}
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if several, pool := got.GivenTwice(); !slices.Equal(several, test.several) ||
				!slices.Equal(pool, test.pool) {
				t.Errorf("given twice: %v to pods, %v to a pod and the pool; want %v and %v", several, pool,
					test.several, test.pool)
			}
		})
	}
	if got, err := host.ReadCPUState(write(t, nil)); err != nil || got.Policy != "" {
		t.Errorf("without a file: %+v, %v, want nothing", got, err)
	}
}

// Whatever a file holds, reading ends in a machine or in an error: never in a panic.
func TestAnyContentOfAnyFileIsReadOrRefused(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(small()))
	root := write(t, small())
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "file")
		text := rapid.OneOf(
			rapid.SampledFrom([]string{
				"", "\x00", "-1", "0-65535", "99999999999999999999", "0,0,0", "3-",
				"ffffffff,ffffffff",
			}),
			rapid.StringMatching(`[0-9a-f,\- \n]{0,20}`), rapid.String(),
		).Draw(rt, "text")
		file := root.Path(name)
		testkit.Check(rt, os.WriteFile(file, []byte(text), 0o644))
		r, err := host.Read(root, "")
		if err == nil && r.Machine.NumCPUs() == 0 {
			rt.Errorf("%s = %q: a machine without CPUs", name, text)
		}
		if err != nil && !strings.Contains(err.Error(), root.Dir) {
			rt.Errorf("%s = %q: error %q does not say where", name, text, err)
		}
		testkit.Check(rt, os.WriteFile(file, []byte(small()[name]), 0o644))
	})
}
