package apply_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/view"
)

// sights writes what Inspect says of a pod, one line for each file.
func (r *rig) sights(uid string) []string {
	r.t.Helper()
	all, err := r.engine.Inspect(uid)
	r.must(err)
	var lines []string
	for _, s := range all {
		if s.Gone {
			lines = append(lines, s.Path+" is gone")
		}
		for _, v := range s.Values {
			line := fmt.Sprintf("%s %s: %q of %q", s.Path, v.File, v.Got, v.Want)
			switch v.State {
			case view.Unreadable:
				line = fmt.Sprintf("%s %s: unreadable", s.Path, v.File)
			case view.Differs:
				line += fmt.Sprintf(" differs, effective %q", v.Effective)
			case view.Unmanaged:
				line += " " + v.Cause
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestInspectComparesTheKernelWithTheTable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.engine.Inspect("x"); !errors.Is(err, apply.ErrNotReady) && err != nil {
		t.Fatal(err)
	}
	r.complete()
	exclusive, shared := r.bind("x", qos.Exclusive, "1,7"), r.bind("s", qos.SharedPool, "")
	pinned, waiting := r.bind("k", qos.KubeletPinned, ""), r.bind("w", qos.Exclusive, "")
	for _, c := range []apply.Container{exclusive, shared, pinned} {
		r.must(r.run(c))
	}
	if err := r.run(waiting); !errors.Is(err, apply.ErrUnallocated) {
		t.Fatalf("a pod without an allocation starts: %v", err)
	}
	r.must(r.engine.Verify())
	check := func(uid string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, r.sights(uid)); diff != "" {
			t.Errorf("pod %s (-want +got):\n%s", uid, diff)
		}
	}
	check("x", `kubepods/podx cpu.max: "max 100000" of "max"`,
		`kubepods/podx/c cpu.max: "max 100000" of "max"`, `kubepods/podx/c cpuset.cpus: "1,7" of "1,7"`)
	check("s", `kubepods/pods/c cpuset.cpus: "0,2-6,8-11" of "0,2-6,8-11"`)
	check("k", `kubepods/podk/c cpuset.cpus: "" of "" left to the kubelet`)
	check("w", `kubepods/podw/c cpuset.cpus: "" of "" must not run: UnallocatedExclusivePod`)
	check("unknown")

	r.must(r.wire.Tree.Write(exclusive.Group, desired.CPUs, "0-11"))
	r.must(r.wire.Tree.Write(exclusive.PodGroup, desired.QuotaV2, "20000 100000"))
	writes := len(r.wire.writes)
	check("x", `kubepods/podx cpu.max: "20000 100000" of "max" differs, effective ""`,
		`kubepods/podx/c cpu.max: "max 100000" of "max"`,
		`kubepods/podx/c cpuset.cpus: "0-11" of "1,7" differs, effective "0-11"`)
	if len(r.wire.writes) != writes {
		t.Errorf("to inspect wrote %v", r.wire.writes[writes:])
	}
	r.must(r.engine.Verify())
	check("x", `kubepods/podx cpu.max: "max 100000" of "max"`,
		`kubepods/podx/c cpu.max: "max 100000" of "max"`, `kubepods/podx/c cpuset.cpus: "1,7" of "1,7"`)

	r.wire.before = func(op kernel.Op, group, file string) error {
		if op == kernel.OpRead && group == exclusive.Group && file == desired.CPUs {
			return syscall.EIO
		}
		if op == kernel.OpRead && group == shared.Group {
			return fs.ErrNotExist
		}
		return nil
	}
	check("s", "kubepods/pods/c is gone")
	if got := r.sights("x"); !slices.Contains(got, "kubepods/podx/c cpuset.cpus: unreadable") {
		t.Errorf("an unreadable file is reported as %q", got)
	}
}
