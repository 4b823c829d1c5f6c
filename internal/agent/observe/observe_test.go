package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestRecordsThatCannotBeUsedLeaveTheLastGoodOneInForce(t *testing.T) {
	t.Parallel()
	const good = `{"policyName":"static","defaultCpuSet":"0,3","entries":{"u":{"main":"1-2"}},"checksum":1}`
	tests := map[string]struct{ text, says string }{
		"good":           {good, ""},
		"gone":           {"", "cpu_manager_state was there, and is not any more"},
		"torn":           {"{", "cpu_manager_state"},
		"another policy": {`{"policyName":"none","defaultCpuSet":"","checksum":1}`, `is of policy "none"`},
		"a CPU that is not there": {
			`{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"main":"9"}},"checksum":1}`,
			"gives CPU 9 to pod u, and that CPU is not online",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := host.Root{Dir: t.TempDir()}
			file := root.Path("var/lib/kubelet/cpu_manager_state")
			testkit.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
			if tt.text != "" {
				testkit.Check(t, os.WriteFile(file, []byte(tt.text), 0o644))
			}
			last := probe.KubeletState{CPU: host.CPUState{Policy: "static", Pods: map[string][]int{"u": {1, 2}}}}
			static := annotation.Kubelet{CPU: annotation.KubeletCPU{Policy: "static"}}
			got, err := Records(root, static, grid.Machine{Arch: "amd64", Cores: 4}.Build(t), last)
			if diff := cmp.Diff([]int{1, 2}, got.CPU.Pods["u"]); diff != "" {
				t.Errorf("CPUs of the pod (-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want one that says %q", err, tt.says)
			}
		})
	}
}

func apiPod(name, uid string, began time.Time) *convert.Pod {
	p := object.Pod("ns/"+name, object.UID(uid))
	p.Status.StartTime = &metav1.Time{Time: began}
	return convert.ReadPod(p)
}

func TestAnAnswerIsOfThePodThatRanWhenItWasAsked(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 0, 0, 10, 0, time.UTC)
	before, since := at.Add(-time.Minute), at
	main := func(cpus ...int) map[string]kubeletapi.Container {
		return map[string]kubeletapi.Container{"main": {CPUs: cpus}}
	}
	answer := kubeletapi.Resources{Pods: []kubeletapi.Pod{
		{Namespace: "ns", Name: "old", Containers: main(1)},
		{Namespace: "ns", Name: "new", Containers: main(2)},
		{Namespace: "ns", Name: "twice", Containers: main(3)},
		{Namespace: "ns", Name: "twice", Containers: main(4)},
	}}
	pods := []*convert.Pod{
		apiPod("old", "o", before), apiPod("new", "n", since), apiPod("twice", "t", before),
		apiPod("quiet", "q", before),
	}
	last := resources{pods: map[string]podResources{"q": {main(5), true}, "gone": {main(6), true}}}
	want := map[string]podResources{"o": {main(1), true}, "q": {main(5), false}}
	got := last.with(answer, pods, at, nil)
	if diff := cmp.Diff(want, got.pods, cmp.AllowUnexported(podResources{})); diff != "" {
		t.Errorf("resources of pods (-want +got):\n%s", diff)
	}
	if got.answers != 1 {
		t.Errorf("%d answers, want 1", got.answers)
	}
}

func TestDevicesThatTheNodeStillCountsAreUnhealthy(t *testing.T) {
	t.Parallel()
	gpu := func(id string) host.Device { return host.Device{Resource: "x/gpu", ID: id} }
	node := &corev1.Node{Status: corev1.NodeStatus{Capacity: object.List("x/gpu", "2")}}
	lost := gpu("b")
	lost.Unhealthy = true
	before := []host.Device{gpu("a"), gpu("b"), gpu("c")}
	if diff := cmp.Diff([]host.Device{gpu("a"), lost}, withLost([]host.Device{gpu("a")}, before, node)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]host.Device{gpu("a")}, withLost([]host.Device{gpu("a")}, before, nil)); diff != "" {
		t.Errorf("devices without a Node (-want +got):\n%s", diff)
	}
}

func TestAPluginIsLostWithTheLastOfItsDevices(t *testing.T) {
	t.Parallel()
	gpu := func(id string, unhealthy bool) host.Device {
		return host.Device{Resource: "x/gpu", ID: id, Unhealthy: unhealthy}
	}
	for name, test := range map[string]struct {
		devices []host.Device
		want    bool
	}{
		"no device was ever reported": {},
		"all work":                    {[]host.Device{gpu("a", false), gpu("b", false)}, false},
		"one of two works":            {[]host.Device{gpu("a", true), gpu("b", false)}, false},
		"none works":                  {[]host.Device{gpu("a", true), gpu("b", true)}, true},
		"another resource works": {
			[]host.Device{gpu("a", true), {Resource: "y/gpu", ID: "a"}}, true,
		},
	} {
		b := &Observer{resources: NewSource(resources{devices: test.devices}, SourceOptions[resources]{})}
		if got := b.HasLost("x/gpu"); got != test.want {
			t.Errorf("%s: lost %t, want %t", name, got, test.want)
		}
	}
}

func TestADisputeLastsOverTwoAnswers(t *testing.T) {
	t.Parallel()
	var d dispute
	for i, step := range []struct {
		text    string
		answers int
		want    string
	}{{"a", 1, ""}, {"a", 1, ""}, {"a", 2, "a"}, {"b", 2, ""}, {"b", 3, "b"}, {"", 3, ""}} {
		if got := d.lasting(step.text, step.answers); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
