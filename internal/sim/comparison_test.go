package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// packing fills the fullest node first; the default fills the emptiest.
const packing = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: tenon-scheduler
  plugins:
    multiPoint:
      enabled: [{name: NodeNUMAResource}]
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 1}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResourceGroups: [koordinator.sh]
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}
`

// TestTheSameConfigurationDiffersInNothing: pods of three priorities on two nodes preempt others, a gang waits for
// room, and pods end. What a replay makes of that with a configuration is what it makes of it with an equal one.
func TestTheSameConfigurationDiffersInNothing(t *testing.T) {
	t.Parallel()
	first := began(t)
	records := []*journal.Record{
		first, put(t, testobject.Node("m", nil, "cpu", "8", "pods", "110")),
		put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")),
	}
	for i := range 12 {
		p := podNamed(fmt.Sprint("p", i), testobject.Priority(int32(i%3)))
		if i > 8 {
			testobject.Gang("g", "3")(p)
		}
		records = append(records, put(t, p))
		if i < 4 {
			records = append(records, put(t, podNamed(p.Name, testobject.On([]string{"m", "n"}[i%2]))))
		}
	}
	for _, name := range []string{"p0", "p1", "p2"} {
		records = append(records, event(t, journal.Delete, podNamed(name)))
	}
	got, text := compared(t, string(first.Snapshot.Config), records...)
	if len(got.Differences) > 0 || got.Other.Preempted == 0 {
		t.Errorf("got\n%s\nwant no difference, and pods that are preempted", text)
	}
	if diff := cmp.Diff(got.Replayed, got.Other); diff != "" {
		t.Error(diff)
	}
}

// compared runs replay --with on records, one a second, and returns its JSON and its text.
func compared(t *testing.T, with string, records ...*journal.Record) (out Comparison, text string) {
	t.Helper()
	path := seal(t, time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC), records...)
	other := filepath.Join(t.TempDir(), "other.yaml")
	testkit.Check(t, os.WriteFile(other, []byte(with), 0o600))
	for _, format := range []string{"json", "table"} {
		var printed bytes.Buffer
		c := NewReplayCommand(genericiooptions.IOStreams{Out: &printed, ErrOut: &printed})
		c.SetArgs([]string{path, "--with", other, "-o", format})
		testkit.Check(t, c.ExecuteContext(t.Context()))
		if text = printed.String(); format == "json" {
			testkit.Check(t, json.Unmarshal(printed.Bytes(), &out))
		}
	}
	return out, strings.NewReplacer(path, "FILE", other, "other.yaml").Replace(text)
}

func bound(t *testing.T, pod, node string, cpus string) *journal.Record {
	t.Helper()
	return put(t, podNamed(pod, testobject.Both("cpu", cpus), testobject.On(node)))
}

// TestAnotherConfigurationMakesRoomForALargePod: two pods are spread by default, and a third one that needs a node of
// its own waits until the first has run its 8 seconds. With the other configuration they share a node.
func TestAnotherConfigurationMakesRoomForALargePod(t *testing.T) {
	t.Parallel()
	pod := func(name, cpus string) *journal.Record {
		return put(t, podNamed(name, testobject.Both("cpu", cpus)))
	}
	got, text := compared(t, packing,
		began(t), put(t, testobject.Node("m", nil, "cpu", "8", "pods", "110")),
		put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")),
		pod("x", "4"), decide("default/x", "x", "n"), bound(t, "x", "n", "4"), // 3 to 5
		pod("y", "4"), decide("default/y", "y", "m"), bound(t, "y", "m", "4"), // 6 to 8
		pod("z", "8"), // 9
		put(t, testobject.Node("o", nil, "cpu", "1", "pods", "110")),
		put(t, testobject.Node("p", nil, "cpu", "1", "pods", "110")),
		put(t, testobject.Node("q", nil, "cpu", "1", "pods", "110")),
		event(t, journal.Delete, podNamed("x")), // 13
		decide("default/z", "z", "n"), bound(t, "z", "n", "8"), put(t, testobject.Node("r", nil, "cpu", "1")))
	want := Comparison{
		File: got.File, With: got.With, From: got.From, To: got.From.Add(16 * time.Second), Pods: 3, AsRecorded: 3,
		Recorded: Course{Placed: 3, MeanWait: 3.333, LongestWait: 6},
		Replayed: Course{Placed: 3, MeanWait: 0.667, LongestWait: 2}, Other: Course{Placed: 3},
		Differences: []PodDifference{
			{Pod: "default/y", Replayed: "m", Other: "n"},
			{Pod: "default/z", Replayed: "n", ReplayedWait: 2, Other: "m"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
}

// TestPodsThatOneConfigurationServesAreNotCompared: the journal's configuration serves only the first pod, the other
// one serves both. Each column counts the same pods.
func TestPodsThatOneConfigurationServesAreNotCompared(t *testing.T) {
	t.Parallel()
	got, text := compared(t, packing+"- schedulerName: other-scheduler\n",
		began(t), put(t, testobject.Node("m", nil, "cpu", "8", "pods", "110")),
		put(t, podNamed("both")), put(t, podNamed("one", testobject.Scheduler("other-scheduler"))))
	if got.Pods != 1 || got.Replayed.Placed != 1 || got.Other.Placed != 1 || got.Recorded.Unplaced != 1 ||
		len(got.Differences) > 0 {
		t.Errorf("got %+v, want one pod in each column", got)
	}
	want := `not compared: 1: one of the configurations does not serve the scheduler name "other-scheduler"`
	if !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

// TestGPUsOfAComparison: half of the one GPU is given to a pod. The other pod asks for a whole one, as half of all do:
// half of what is free counts as fragmented. All of it is free for the first half of the time. The journal has no
// decision, so its own scheduler has given nothing.
func TestGPUsOfAComparison(t *testing.T) {
	t.Parallel()
	text, _, _ := strings.Cut(gpuNode("g", 8, 1), "\n---\n")
	_, device, _ := strings.Cut(gpuNode("g", 8, 1), "---\n")
	n, d := &corev1.Node{}, &devicev1alpha1.Device{}
	testkit.Check(t, yaml.Unmarshal([]byte(text), n))
	testkit.Check(t, yaml.Unmarshal([]byte(strings.TrimSuffix(device, "---")), d))
	pod := func(name, percent string) *corev1.Pod {
		return podNamed(name, testobject.Both("cpu", "1"), testobject.Both("koordinator.sh/gpu", percent))
	}
	config := strings.Replace(packing, "NodeNUMAResource", "DeviceShare", 1)
	got, printed := compared(t, config, began(t), put(t, n), put(t, d), put(t, testobject.Node("o", nil, "cpu", "1")),
		put(t, pod("half", "50")), put(t, pod("whole", "100")), put(t, testobject.Node("p", nil, "cpu", "1")),
		put(t, testobject.Node("q", nil, "cpu", "1")), put(t, testobject.Node("r", nil, "cpu", "1")))
	want := &GPUCourse{Allocated: 0.25, AllocatedAtEnd: 0.5, Fragmented: 0.125, FragmentedAtEnd: 0.25}
	if diff := cmp.Diff(want, got.Replayed.GPUs) + cmp.Diff(want, got.Other.GPUs) +
		cmp.Diff(&GPUCourse{Fragmented: 0}, got.Recorded.GPUs); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, printed)
	}
}
