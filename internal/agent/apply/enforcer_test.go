package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

func TestPodsLieBelowTheRootOfEitherDriver(t *testing.T) {
	t.Parallel()
	for root, want := range map[string][]string{
		"":      {"kubepods", "kubepods.slice"},
		"/":     {"kubepods", "kubepods.slice"},
		"/a":    {"a/kubepods", "a.slice/a-kubepods.slice"},
		"a/b-c": {"a/b-c/kubepods", "a.slice/a-b_c.slice/a-b_c-kubepods.slice"},
	} {
		if diff := cmp.Diff(want, kubepods(root)); diff != "" {
			t.Errorf("below %q (-want +got):\n%s", root, diff)
		}
	}
}

// agent is one that writes, or does not. It drops what is reported.
type agent bool

func (a agent) Writes() bool      { return bool(a) }
func (agent) IsUnasked() bool     { return false }
func (agent) Record(Record)       {}
func (agent) Timed(time.Duration) {}

// newEnforcer returns an Enforcer over the files of a folder, which the agent writes or not.
func newEnforcer(t *testing.T, writes bool) (*Enforcer, *testclock.FakeClock) {
	t.Helper()
	dir, clock := t.TempDir(), testclock.NewFakeClock(time.Unix(1e9, 0))
	enforcer, err := NewEnforcer(EnforcerOptions{
		Node: "n", Root: host.Root{Dir: dir}, Agent: agent(writes), Clock: clock,
		Engine: Options{
			Cgroup:  Mounted(filepath.Join(dir, "sys/fs/cgroup"), desired.V1),
			Reports: agent(writes),
		},
	})
	testkit.Check(t, err)
	return enforcer, clock
}

func TestAMachineWithoutATreeIsAnErrorWhereTheAgentMayWrite(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		_, err := NewEnforcer(EnforcerOptions{Root: host.Root{Dir: t.TempDir()}, Allowed: allowed})
		if (err != nil) != allowed {
			t.Errorf("allowed to write: %v, New = %v", allowed, err)
		}
	}
}

func TestTheLastDriftOfEachGroupIsRemembered(t *testing.T) {
	t.Parallel()
	enforcer, clock := newEnforcer(t, true)
	drift := func(group string, kind Kind) {
		enforcer.noteDrift(Record{Kind: kind, Group: group, File: desired.CPUs, Want: "0", Got: "1"})
		clock.Step(time.Second)
	}
	seen := clock.Now()
	drift("a", Drifted)
	drift("b", DriftRepaired)
	repaired := clock.Now()
	drift("a", DriftRepaired)
	drift("a", DriftRepaired)
	want := &view.Drift{File: desired.CPUs, Want: "0", Got: "1", Seen: seen, Repaired: &repaired}
	if diff := cmp.Diff(want, enforcer.lastDrift("a")); diff != "" {
		t.Errorf("drift of a (-want +got):\n%s", diff)
	}
	if got := enforcer.lastDrift("b"); got != nil {
		t.Errorf("a repair without a drift is remembered: %+v", got)
	}
	for i := range maxDrifts {
		drift(fmt.Sprint(i), Drifted)
	}
	if len(enforcer.drifts) != maxDrifts || enforcer.lastDrift("a") != nil || enforcer.lastDrift("0") == nil {
		t.Errorf("%d drifts are remembered, want the last %d", len(enforcer.drifts), maxDrifts)
	}
}

func TestWhatIsSaidOfAPodWithoutGroups(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for note, writes := range map[string]bool{
		"the agent writes no cpusets here (mode Follow): the kubelet chooses": false,
		ErrNotReady.Error(): true,
	} {
		enforcer, _ := newEnforcer(t, writes)
		got := enforcer.Describe(pod, annotation.ModeFollow)
		if diff := cmp.Diff([]string{note}, got.Notes); diff != "" || got.Cgroup != "v1" || len(got.Groups) != 0 {
			t.Errorf("%+v (-want +got):\n%s", got, diff)
		}
	}
}

func TestRunEndsWithItsContextWhateverTheAgentDoes(t *testing.T) {
	t.Parallel()
	for _, writes := range []bool{false, true} {
		enforcer, _ := newEnforcer(t, writes)
		if got, want := enforcer.folder("kubepods"), enforcer.o.Root.Cgroup("cpuset", "kubepods"); got != want {
			t.Errorf("folder = %s, want %s", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- enforcer.Run(ctx) }()
		enforcer.Engage()
		enforcer.Changed()
		enforcer.Engage()
		if err := enforcer.First(); writes != (err != nil) {
			t.Errorf("First = %v, want %v only where the agent writes", err, ErrNotReady)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

func TestTheGroupOfAClassIsThatOfTheDriverWhoseGroupsExist(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ exists, all, burstable string }{
		"the cgroupfs driver": {"a/kubepods", "a/kubepods", "a/kubepods/burstable"},
		"the systemd driver": {
			"a.slice/a-kubepods.slice", "a.slice/a-kubepods.slice",
			"a.slice/a-kubepods.slice/a-kubepods-burstable.slice",
		},
		"no pod has started yet": {".", "a/kubepods", "a/kubepods/burstable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testkit.Check(t, os.MkdirAll(filepath.Join(dir, c.exists), 0o755))
			e := New(Options{Cgroup: Mounted(dir, desired.V2), Roots: kubepods("a")})
			if got := [2]string{e.ClassGroup(""), e.ClassGroup("burstable")}; got != [2]string{c.all, c.burstable} {
				t.Errorf("got %q, want %q and %q", got, c.all, c.burstable)
			}
		})
	}
}
