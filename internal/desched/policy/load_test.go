package policy

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// byLoad moves pods of nodes that use more than 75 % of their CPUs to those that use less than 45 %.
func byLoad(top, more string) string {
	return top + "profiles:\n- name: p\n  plugins: {balance: {enabled: [LowNodeLoad]}}\n  pluginConfig:\n" +
		"  - {name: LowNodeLoad, args: {lowThresholds: {cpu: 45}, highThresholds: {cpu: 75}" + more + "}}\n" + noLimits
}

// loaded is a stage on which n0 uses 90 % and n1 10 % of 10 CPUs. Pods use one CPU each.
func loaded(t *testing.T, config string) (*stage, *clocktesting.FakeClock) {
	t.Helper()
	all := nodes("n0", "n1")
	for _, n := range all {
		n.Status.Allocatable = object.List("cpu", "10", "memory", "10Gi")
	}
	s := newStage(t, config, all, web("a", "n0"), web("b", "n0"), web("c", "n0"))
	s.fits = map[string]string{"a": "n1", "b": "n1", "c": "n1"}
	now := clocktesting.NewFakeClock(start.Add(time.Hour))
	s.Clock = now
	s.Loads = unequal{now}
	return s, now
}

// unequal are the loads of the nodes of loaded, reported now.
type unequal struct{ now *clocktesting.FakeClock }

func (u unequal) View(node string) load.View {
	use := map[string]int64{"n0": 9000, "n1": 1000}[node]
	pods := map[string]load.PodUse{}
	for _, name := range []string{"a", "b", "c"} {
		pods[object.Pod(name).Namespace+"/"+name] = load.PodUse{Use: amount.Pair{1000, 0}}
	}
	n := load.NewNode()
	n.SetReport(&load.Report{Updated: u.now.Now(), Use: &amount.Pair{use, 0}, Pods: pods})
	return n.View()
}

func (s *stage) rounds(t *testing.T, now *clocktesting.FakeClock, n int) (moved []string) {
	t.Helper()
	for range n {
		now.Step(2 * time.Minute)
		moved = s.moved(t)
	}
	return moved
}

func TestMovesByLoadAreToOneNodeAndOnlyAfterSixRounds(t *testing.T) {
	t.Parallel()
	s, now := loaded(t, byLoad("", ""))
	if moved := s.rounds(t, now, 5); len(moved) > 0 {
		t.Fatalf("moved %v after five rounds", moved)
	}
	if moved := s.rounds(t, now, 1); len(moved) != 2 {
		t.Fatalf("moved %v after six rounds, want two pods: 20 %% of the node", moved)
	}
	for _, j := range s.jobs {
		if j.Spec.Mode != "ReservationFirst" ||
			!strings.Contains(string(j.Spec.ReservationOptions.Template.Raw), `"nodeName":"n1"`) {
			t.Errorf("job %+v is not for n1", j.Spec)
		}
	}
}

func TestNodesWithAMoveUnderWayAreLeftAlone(t *testing.T) {
	t.Parallel()
	started := func(source, target string, phase move.Phase) move.Job {
		return move.Job{Source: source, Started: time.Now(), Status: move.Status{Phase: phase, Node: target}}
	}
	for name, c := range map[string]struct {
		job  move.Job
		want int
	}{
		"a move from the node":    {started("n0", "n9", ""), 0},
		"a move to the target":    {started("n9", "n1", ""), 0},
		"a move that has ended":   {started("n0", "n1", move.Succeeded), 2},
		"a move that has failed":  {started("n0", "n1", move.Failed), 2},
		"a move of other nodes":   {started("n8", "n9", ""), 2},
		"a move that waits still": {move.Job{Source: "n0"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := loaded(t, byLoad("", ""))
			c.job.UID, c.job.PodUID, c.job.Name = "j", "other", "j"
			s.state.SetJob(c.job)
			_ = s.Jobs.Add(jobObject("j"))
			if moved := s.rounds(t, now, 6); len(moved) != c.want {
				t.Errorf("moved %v, want %d", moved, c.want)
			}
		})
	}
}

func TestADryRunByLoadDecidesAndWritesNothing(t *testing.T) {
	t.Parallel()
	s, now := loaded(t, byLoad("", ", dryRun: true"))
	if moved := s.rounds(t, now, 6); len(moved) > 0 || len(s.last) != 2 {
		t.Errorf("moved %v, decided %+v, want two moves that are not made", moved, s.last)
	}
}

func TestWithoutMetricsNoPodMovesByLoad(t *testing.T) {
	t.Parallel()
	s, now := loaded(t, byLoad("", ""))
	s.Loads = nil
	if moved := s.rounds(t, now, 6); len(moved) > 0 {
		t.Errorf("moved %v", moved)
	}
}

func jobObject(name string) *v1alpha1.PodMigrationJob {
	j := &v1alpha1.PodMigrationJob{}
	j.Name, j.UID = name, types.UID(name)
	return j
}
