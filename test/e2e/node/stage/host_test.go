//go:build linux

package stage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsLeftBehindIsNamed(t *testing.T) {
	t.Parallel()
	before := host{"mount": {"/proc"}, "address": {"127.0.0.1/8"}, "sysctl": {"kernel/panic=0"}}
	for name, test := range map[string]struct {
		after host
		want  []string
	}{
		"nothing": {before, nil},
		"a mount": {
			host{"mount": {"/proc", "/run/stage"}, "address": {"127.0.0.1/8"}, "sysctl": {"kernel/panic=0"}},
			[]string{"mount /run/stage"},
		},
		"an address that is gone and a value that changed": {
			host{"mount": {"/proc"}, "sysctl": {"kernel/panic=10"}},
			[]string{"address 127.0.0.1/8 is gone", "sysctl kernel/panic=10", "sysctl kernel/panic=0 is gone"},
		},
		"a group and a folder": {
			host{
				"mount": {"/proc"}, "address": {"127.0.0.1/8"}, "sysctl": {"kernel/panic=0"},
				"path": {"/var/lib/kubelet"}, "cgroup": {"tenon-e2e-1"},
			},
			[]string{"path /var/lib/kubelet", "cgroup tenon-e2e-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, before.compare(test.after)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheMachineIsSeen(t *testing.T) {
	t.Parallel()
	h := look()
	for _, kind := range []string{"mount", "sysctl"} {
		if len(h[kind]) == 0 {
			t.Errorf("no %s was found", kind)
		}
	}
}
