//go:build linux

package cgroupfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMountsAreRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line string
		want Hierarchy
		ok   bool
	}{
		"v1": {
			"34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset",
			Hierarchy{Dir: "/sys/fs/cgroup/cpuset", Controllers: []string{"cpuset"}},
			true,
		},
		"v1 with two controllers and an optional field": {
			"34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
			Hierarchy{Dir: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
			true,
		},
		"v1 with a name alone": {
			"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
			Hierarchy{Dir: "/sys/fs/cgroup/systemd"},
			true,
		},
		"v2": {
			"41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", Hierarchy{Dir: "/sys/fs/cgroup", V2: true}, true,
		},
		"another file system": {line: "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755"},
		"no mount at all":     {line: "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := parseMount(test.line)
			if diff := cmp.Diff(test.want, got); ok != test.ok || diff != "" {
				t.Errorf("ok %v, want %v (-want +got):\n%s", ok, test.ok, diff)
			}
		})
	}
}

// folders are hierarchies that are plain folders.
func folders(t *testing.T, groups ...string) Hierarchies {
	t.Helper()
	hs := Hierarchies{
		{Dir: t.TempDir(), Controllers: []string{"cpu"}},
		{Dir: t.TempDir(), Controllers: []string{"memory"}},
	}
	for _, g := range groups {
		for _, dir := range hs.Dirs(g) {
			testkit.Check(t, os.MkdirAll(dir, 0o755))
		}
	}
	return hs
}

func TestOnlyGroupsOfTestsAreRemoved(t *testing.T) {
	t.Parallel()
	hs := folders(t, "kubepods/pod1", "tenon-e2e-1/a/b")
	for _, group := range []string{"", "/", "kubepods", "kubepods/tenon-e2e-1", "../tenon-e2e-1"} {
		if err := hs.Remove(group); err == nil || !strings.Contains(err.Error(), Prefix) {
			t.Errorf("Remove(%q): %v, want an error that says what may be removed", group, err)
		}
	}
	if err := hs.Remove("/tenon-e2e-1"); err != nil {
		t.Error(err)
	}
	for _, dir := range hs.Dirs("tenon-e2e-1") {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	for _, dir := range hs.Dirs("kubepods/pod1") {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a group of another process: %v", err)
		}
	}
}

func TestWhatDeadTestsLeftIsSwept(t *testing.T) {
	t.Parallel()
	dead := exec.Command("true")
	testkit.Check(t, dead.Run())
	gone, own := Name(dead.Process.Pid), Name(os.Getpid())
	hs := folders(t, gone+"/1/kubepods", own+"/1", "tenon-e2e-odd", "tenon-e2")
	if diff := cmp.Diff(3, len(hs.Left())); diff != "" {
		t.Errorf("groups of tests (-want +got):\n%s", diff)
	}
	if err := hs.Sweep(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{own}, hs.Left()); diff != "" {
		t.Errorf("groups after a sweep (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(hs[0].Dir, "tenon-e2")); err != nil {
		t.Errorf("a group with another name: %v", err)
	}
}

func TestAFileWithoutItsControllerIsNamed(t *testing.T) {
	t.Parallel()
	_, err := folders(t).Read("g", "cpuset.cpus")
	if err == nil || !strings.Contains(err.Error(), `"cpuset"`) {
		t.Errorf("error is %v, want one that names the controller", err)
	}
}
