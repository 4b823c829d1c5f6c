package verb

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/local/install"
)

func TestEverythingInTheDemoIsFoundByItsLabel(t *testing.T) {
	t.Parallel()
	objects, err := install.Parse(examples.Demo())
	if err != nil {
		t.Fatal(err)
	}
	key, value, _ := strings.Cut(examples.DemoLabel, "=")
	classes := map[string]bool{}
	for _, o := range objects {
		if o.GetLabels()[key] != value {
			t.Errorf("%s %s has no label %s", o.GetKind(), o.GetName(), examples.DemoLabel)
		}
		classes[o.GetLabels()[annotation.QoSClass]] = true
	}
	for _, class := range []string{"LSE", "LSR", "LS"} {
		if !classes[class] {
			t.Errorf("the demo has no bare pod of class %s", class)
		}
	}
}

func TestWhere(t *testing.T) {
	t.Parallel()
	status := func(text string) map[string]string { return map[string]string{annotation.ResourceStatusKey: text} }
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"CPUs of its own": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: status(`{"cpuset":"0-3"}`)}}, "0-3"},
		"a part of the shared ones": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: status(`{"cpuSharedPools":[{"socket":0,"node":0},{"socket":1,"node":2}]}`)}},
			"shared, NUMA node 0; shared, NUMA node 2",
		},
		"no word about CPUs": {corev1.Pod{}, "shared"},
		"no node": {
			corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: `SMTAlignment: 0/1 nodes are available. {"code":"SMTAlignment"}`,
			}}}},
			"SMTAlignment: 0/1 nodes are available.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := where(&test.pod); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
