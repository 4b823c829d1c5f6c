package enforce

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
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

// newTree is a tree over the files of a folder, which the agent writes or not.
func newTree(t *testing.T, writes bool) (*Tree, *testclock.FakeClock) {
	t.Helper()
	dir, clock := t.TempDir(), testclock.NewFakeClock(time.Unix(1e9, 0))
	tree, err := New(Options{
		Node: "n", Root: host.Root{Dir: dir}, Writes: func() bool { return writes }, Clock: clock,
		Engine: apply.Options{Cgroup: apply.Mounted(filepath.Join(dir, "sys/fs/cgroup"), desired.V1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree, clock
}

func TestAMachineWithoutATreeIsAnErrorWhereTheAgentMayWrite(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		if _, err := New(Options{Root: host.Root{Dir: t.TempDir()}, Allowed: allowed}); (err != nil) != allowed {
			t.Errorf("allowed to write: %v, New = %v", allowed, err)
		}
	}
}

func TestTheLastDriftOfEachGroupIsRemembered(t *testing.T) {
	t.Parallel()
	tree, clock := newTree(t, true)
	drift := func(group string, kind apply.Kind) {
		tree.noteDrift(apply.Record{Kind: kind, Group: group, File: desired.CPUs, Want: "0", Got: "1"})
		clock.Step(time.Second)
	}
	seen := clock.Now()
	drift("a", apply.Drifted)
	drift("b", apply.DriftRepaired)
	repaired := clock.Now()
	drift("a", apply.DriftRepaired)
	drift("a", apply.DriftRepaired)
	want := &view.Drift{File: desired.CPUs, Want: "0", Got: "1", Seen: seen, Repaired: &repaired}
	if diff := cmp.Diff(want, tree.driftOf("a")); diff != "" {
		t.Errorf("drift of a (-want +got):\n%s", diff)
	}
	if got := tree.driftOf("b"); got != nil {
		t.Errorf("a repair without a drift is remembered: %+v", got)
	}
	for i := range maxDrifts {
		drift(fmt.Sprint(i), apply.Drifted)
	}
	if len(tree.drifts) != maxDrifts || tree.driftOf("a") != nil || tree.driftOf("0") == nil {
		t.Errorf("%d drifts are remembered, want the last %d", len(tree.drifts), maxDrifts)
	}
}

func TestWhatIsSaidOfAPodWithoutGroups(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for note, writes := range map[string]bool{
		"the agent writes no cpusets here (mode Follow): the kubelet chooses": false,
		apply.ErrNotReady.Error(): true,
	} {
		tree, _ := newTree(t, writes)
		got := tree.Describe(pod, annotation.ModeFollow)
		if diff := cmp.Diff([]string{note}, got.Notes); diff != "" || got.Cgroup != "v1" || len(got.Groups) != 0 {
			t.Errorf("%+v (-want +got):\n%s", got, diff)
		}
	}
}

func TestRunEndsWithItsContextWhateverTheAgentDoes(t *testing.T) {
	t.Parallel()
	for _, writes := range []bool{false, true} {
		tree, _ := newTree(t, writes)
		if got, want := tree.folder("kubepods"), tree.o.Root.Cgroup("cpuset", "kubepods"); got != want {
			t.Errorf("folder = %s, want %s", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tree.Run(ctx) }()
		tree.Engage()
		tree.Changed()
		tree.Engage()
		if err := tree.First(); writes != (err != nil) {
			t.Errorf("First = %v, want %v only where the agent writes", err, apply.ErrNotReady)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}
