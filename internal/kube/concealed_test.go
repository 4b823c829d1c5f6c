package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAConcealedNominationIsShownUntilItIsRevealed: to all that reads pods from the informer, and of members alone.
func TestAConcealedNominationIsShownUntilItIsRevealed(t *testing.T) {
	t.Parallel()
	s, _ := gangs(t)
	shown := func(name, nominated, node string) string {
		t.Helper()
		p := memberOf(name, "2")
		p.Status.NominatedNodeName, p.Spec.NodeName = nominated, node
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		out, err := s.ShowConcealed(p)
		testkit.Check(t, err)
		if pod := out.(*corev1.Pod); len(pod.ManagedFields) == 0 {
			return pod.Status.NominatedNodeName
		}
		return "with managed fields"
	}
	s.Conceal("uid-a", "n")
	if got := shown("a", "", ""); got != "" {
		t.Errorf("a pod that is not known is nominated to %q", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		s.PutPod(memberOf(name, "2"))
	}
	s.Conceal("uid-a", "n")
	s.Conceal("uid-b", "m")
	s.Conceal("uid-c", "m")
	for _, c := range []struct{ name, nominated, node, want string }{
		{"a", "", "", "n"}, {"a", "o", "", "o"}, {"a", "", "o", ""}, {"b", "", "", "m"}, {"d", "", "", ""},
	} {
		if got := shown(c.name, c.nominated, c.node); got != c.want {
			t.Errorf("%+v: nominated to %q", c, got)
		}
	}
	known := memberOf("a", "2")
	known.Status.NominatedNodeName = "n"
	s.PutPod(known)
	ended := s.Reveal(func(uid string) bool { return uid == "uid-a" })
	for p, node := range ended {
		if p.Name != "a" || node != "n" || p.Status.NominatedNodeName != "" || p == known {
			t.Errorf("%s on %s, shown on %q", p.Name, node, p.Status.NominatedNodeName)
		}
	}
	s.Exhibit("uid-c")
	s.RemovePod(memberOf("b", "2"))
	if left := s.Reveal(func(string) bool { return true }); len(ended) != 1 || len(left) != 0 ||
		s.Pod("uid-a").Status.NominatedNodeName != "" || shown("a", "", "") != "" {
		t.Errorf("%d ended and %d were left; a is nominated to %q", len(ended), len(left), shown("a", "", ""))
	}
}
