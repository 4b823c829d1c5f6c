package verb

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/testkit/object"
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

func TestTheOutcomeOfTheDemoNamesTheNextCommands(t *testing.T) {
	t.Parallel()
	pod := func(name, class, node string) corev1.Pod {
		return *object.Pod(name, object.Class(class), object.On(node))
	}
	asks := func(p corev1.Pod) corev1.Pod {
		object.Requests("nvidia.com/gpu", "8")(&p)
		return p
	}
	got := outcome([]corev1.Pod{
		pod("web", "LS", "n1"), pod("search", "LSR", "n0"), pod("cannot-fit", "LSR", ""), pod("eval", "", ""),
		asks(pod("big", "", "")), asks(pod("tune", "", "n2")),
		*object.Pod("nightly", object.Class("BE"), object.On("n1"), object.Requests(string(convert.BatchCPU), "500")),
	})
	want := "Demo: 4 pods are placed, 3 pending (big, cannot-fit, eval). Try next:\n" +
		"  " + name() + " explain pod/cannot-fit\n  " + name() + " topology node/n0\n" +
		"  " + name() + " explain pod/big\n  " + name() + " topology node/n2\n" +
		"  " + name() + " quota --rounds\n  " + name() + " gang\n" +
		"  " + name() + " top nodes -w\n  " + name() + " explain pod/nightly\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
