package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// ailing are four nodes of 32 CPUs: one without fault, one whose kubelet is silent, one that is cordoned, and one whose
// agent has been silent for an hour.
func ailing(t *testing.T) *account {
	t.Helper()
	var nodes []corev1.Node
	var topologies []v1alpha2.NodeResourceTopology
	for _, name := range []string{"fine", "gone", "shut", "mute"} {
		nodes = append(nodes, node(name, "32", nil))
		topologies = append(topologies, topology(t, name, shape{1, 2, 8, 2}, nil))
	}
	nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	nodes[2].Spec.Unschedulable = true
	a := newAccount(nodes, []corev1.Pod{pod("web", "LS", "2500m", "gone", "")}, topologies)
	a.metrics = map[string]*slo.NodeMetric{}
	for name, ago := range map[string]time.Duration{"fine": time.Minute, "mute": time.Hour} {
		at := metav1.NewTime(a.now.Add(-ago))
		a.metrics[name] = &slo.NodeMetric{Status: slo.NodeMetricStatus{UpdateTime: &at}}
	}
	return a
}

func TestTopSaysWhichCapacityNewPodsCannotUse(t *testing.T) {
	t.Parallel()
	a := ailing(t)
	for what, want := range map[string][]string{
		"cpu": {
			"gone (NotReady)", "shut (cordoned)", "mute (agent silent)",
			"stranded CPUs: 32 agent (1 node), 32 cordon (1 node), 29500m notReady (1 node)\n",
		},
		"numa": {"gone (NotReady)", "shut (cordoned)", "mute (agent silent)"},
	} {
		var out strings.Builder
		testkit.Check(t, printTop(&out, a, what, "table", 0))
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("tenon top %s lacks %q:\n%s", what, text, out.String())
			}
		}
	}
	for _, n := range a.nodes {
		h := a.health(n)
		load := view.LoadOf(n.Name, 32_000, 0, a.view(n.Name), a.pods[n.Name], h)
		numa := view.NUMALoadsOf(a.view(n.Name), n.Name, h)[0]
		fits := load.Free > 0 && load.LargestFit > 0 && numa.Free > 0 && numa.FreeCores > 0
		strands := load.Free+load.LargestFit+numa.Free+numa.FreeCores == 0 && load.Stranded == "32"
		if h.Closed == "" && (!fits || load.Stranded != "") || h.Closed != "" && !strands {
			t.Errorf("node %s, closed by %q: %+v, %+v", n.Name, h.Closed, load, numa)
		}
		if h.Closed != "" && load.FragmentedPercent != -1 {
			t.Errorf("node %s is closed and %d%% fragmented", n.Name, load.FragmentedPercent)
		}
	}
}

func TestTopologySaysWhatIsWrongWithANode(t *testing.T) {
	t.Parallel()
	a := ailing(t)
	for name, want := range map[string]string{
		"fine": "", "gone": "  health: NotReady: new pods cannot use what is free\n",
	} {
		var out strings.Builder
		testkit.Check(t, printTopology(&out, a.only(name), name, "table", paint{}, 0))
		if text := out.String(); !strings.Contains(text, want) || want == "" && strings.Contains(text, "health") {
			t.Errorf("node %s, want %q:\n%s", name, want, text)
		}
	}
	var out strings.Builder
	testkit.Check(t, printTopology(&out, a, "", "table", paint{}, 0))
	if !strings.Contains(out.String(), "shut (cordoned)") {
		t.Errorf("the list of nodes names no cordon:\n%s", out.String())
	}
}

// only is the account with one node.
func (a *account) only(name string) *account {
	one := *a
	for i, n := range a.nodes {
		if n.Name == name {
			one.nodes = a.nodes[i : i+1]
		}
	}
	return &one
}

func TestAnAgentWhosePodIsNotReadyClosesItsNode(t *testing.T) {
	t.Parallel()
	agent := func(node string, ready corev1.ConditionStatus) corev1.Pod {
		p := pod("agent-on-"+node, "", "", node, "")
		p.Labels = map[string]string{componentLabel: view.AgentName}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	old := agent("twice", corev1.ConditionFalse)
	old.Name = "ends"
	a := newAccount(
		[]corev1.Node{node("ready", "8", nil), node("not", "8", nil), node("twice", "8", nil), node("none", "8", nil)},
		[]corev1.Pod{
			agent("ready", corev1.ConditionTrue), agent("not", corev1.ConditionFalse),
			agent("twice", corev1.ConditionTrue), old,
		}, nil)
	for _, n := range a.nodes {
		want := health.Cause("")
		if n.Name == "not" {
			want = health.Agent
		}
		if got := a.health(n); got.Closed != want {
			t.Errorf("node %s is closed by %q, want %q", n.Name, got.Closed, want)
		}
	}
}
