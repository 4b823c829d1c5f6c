package hook

import (
	"path"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/apply"
)

func TestGroupsAreReadAsTheRuntimeNamesThem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ cgroup, pod, container string }{
		"cgroupfs": {
			"/kubepods/burstable/pod12/ab", "kubepods/burstable/pod12/ab",
			"kubepods/burstable/pod12/ab",
		},
		"cgroupfs below a root":       {"/tenon/kubepods/pod12", "tenon/kubepods/pod12", "tenon/kubepods/pod12"},
		"nothing":                     {"", "", ""},
		"the root":                    {"/", "", ""},
		"a path that leaves the root": {"/../../etc", "etc", "etc"},
		"a slice of containerd": {
			"kubepods-burstable-pod1_2.slice:cri-containerd:ab", "",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-ab.scope",
		},
		"a slice of CRI-O": {
			"kubepods-pod1_2.slice:crio:ab", "",
			"kubepods.slice/kubepods-pod1_2.slice/crio-ab.scope",
		},
		"a slice without a prefix": {
			"kubepods-pod1.slice::ab", "",
			"kubepods.slice/kubepods-pod1.slice/ab.scope",
		},
		"systemd's own slice": {":cri:ab", "", "system.slice/cri-ab.scope"},
		"the root slice":      {"-.slice:cri:ab", "", "cri-ab.scope"},
		"a slice by name": {
			"kubepods-besteffort-pod1_2.slice",
			"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice",
			"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice",
		},
		"a slice by path": {
			"/kubepods.slice/kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice",
			"kubepods.slice/kubepods-pod1.slice",
		},
		"a slice by path, a scope in it": {
			"/kubepods.slice/kubepods-pod1.slice:crio:ab", "",
			"kubepods.slice/kubepods-pod1.slice/crio-ab.scope",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := groupOf(tt.cgroup); got != tt.container {
				t.Errorf("groupOf(%q) = %q, want %q", tt.cgroup, got, tt.container)
			}
			if tt.pod == "" && tt.cgroup != "" && tt.cgroup != "/" {
				return
			}
			if got := apply.SliceGroup(tt.cgroup); got != tt.pod {
				t.Errorf("apply.SliceGroup(%q) = %q, want %q", tt.cgroup, got, tt.pod)
			}
		})
	}
}

// FuzzGroups: whatever path a runtime reports, the group lies below the root of the tree.
func FuzzGroups(f *testing.F) {
	for _, cgroup := range []string{
		"/kubepods/pod1/c", "kubepods-pod1.slice:crio:c", ":a:b", "../x", "a:../../b:c",
		"-.slice:::", "a-.slice:b",
	} {
		f.Add(cgroup)
	}
	f.Fuzz(func(t *testing.T, cgroup string) {
		for _, got := range []string{groupOf(cgroup), apply.SliceGroup(cgroup)} {
			if got != "" && (path.IsAbs(got) || path.Clean(got) != got || got == ".." ||
				strings.HasPrefix(got, "../")) {
				t.Errorf("%q gives %q, want a group below the root", cgroup, got)
			}
		}
	})
}
