package elasticquota

import (
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// TestWhatVictimsLeaveIsHeldForTheirPreemptor: else the pods that come in the place of the victims take it, and the
// preemptor evicts them again and again.
func TestWhatVictimsLeaveIsHeldForTheirPreemptor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "outsider", "serve", "n", 6, 0)
	victim := f.put(t, "victim", "train", "m", 6, 0)
	pod := f.put(t, "p", "train", "", 4, 5)
	if refused, node, said := f.attempt(t, pod); refused.IsSuccess() || node != "m" {
		t.Fatalf("refused %v, preempts on %q: %s", refused, node, said)
	}
	f.remove(victim)
	again, small := f.put(t, "again", "train", "", 6, 0), f.put(t, "small", "train", "", 2, 0)
	if refused, _, _ := f.attempt(t, again); refused.IsSuccess() {
		t.Error("the pod in the place of the victim takes what it left")
	}
	if s := f.Reserve(t.Context(), framework.NewCycleState(), again, "m"); s.IsSuccess() {
		t.Error("nor may it reserve that")
	}
	if refused, _, _ := f.attempt(t, small); !refused.IsSuccess() {
		t.Errorf("a pod that leaves enough: %v", refused)
	}
	if refused, _, _ := f.attempt(t, pod); !refused.IsSuccess() {
		t.Fatalf("the preemptor: %v", refused)
	}

	// Where victims help no more, nothing is held.
	f.quotas.PutQuota(elastic("train", "eng", "1", "3", false))
	refused, node, said := f.attempt(t, pod)
	if refused.IsSuccess() || node != "" {
		t.Fatalf("a pod of four CPUs in a quota of three: refused %v, preempts on %q: %s", refused, node, said)
	}
	if refused, _, _ := f.attempt(t, small); !refused.IsSuccess() {
		t.Errorf("the nomination is withdrawn, and another pod is refused: %v", refused)
	}
}
