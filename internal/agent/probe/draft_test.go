package probe_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestADraftIsOfAllThatItIsMadeOf: every field counts, those added later too, but for what only allocations depend on.
func TestADraftIsOfAllThatItIsMadeOf(t *testing.T) {
	t.Parallel()
	kinds := vary.Whole(&corev1.Node{}, &topo.Machine{}, metav1.Now(), []ledger.Entry{{}}, []*convert.Pod{{}},
		probe.KubeletState{CPU: recorded(t).State.CPU}, &probe.Draft{}, map[string]string{"other": "x"},
		map[string]bool{"other": true}, map[int32]corev1.ResourceList{7: nil},
		map[int]corev1.ResourceList{7: nil})
	in := example(t)
	vary.Fill(&in, kinds)
	d := probe.NewDraft(in, convert.Facts)
	if !d.IsOf(in) {
		t.Fatal("a draft is not of its input")
	}
	vary.Each(&in, kinds, func(field string) {
		name, _, _ := strings.Cut(strings.TrimPrefix(field, "."), ".")
		name, _, _ = strings.Cut(name, "[")
		free := map[string]bool{
			"Since": true, "Entries": true, "Pods": true, "State": true, "Batch": true, "Draft": true,
		}[name]
		if d.IsOf(in) != free {
			t.Errorf("with another %s IsOf = %v, want %v", field, !free, free)
		}
	})
	if (*probe.Draft)(nil).IsOf(in) {
		t.Error("no draft is of an input")
	}
}
