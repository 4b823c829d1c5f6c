package convert_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestTheNodeThatKueueChose is set by its topology-aware scheduling alone.
func TestTheNodeThatKueueChose(t *testing.T) {
	t.Parallel()
	admitted := map[string]string{"kueue.x-k8s.io/podset": "main"}
	required := map[string]string{"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
	onNode := map[string]string{corev1.LabelHostname: "n0"}
	for name, c := range map[string]struct {
		labels, annotations, selector map[string]string
		want                          string
	}{
		"a required domain":       {admitted, required, onNode, "n0"},
		"a domain above the node": {admitted, required, map[string]string{"rack": "r"}, ""},
		"a preferred domain": {
			admitted, map[string]string{"kueue.x-k8s.io/podset-preferred-topology": "rack"}, onNode, "n0",
		},
		"any domain": {
			admitted, map[string]string{"kueue.x-k8s.io/podset-unconstrained-topology": "true"}, onNode, "n0",
		},
		"another key of a pod set": {
			admitted, map[string]string{"kueue.x-k8s.io/podset-group-name": "g"}, onNode, "",
		},
		"a selector of the user":     {admitted, nil, onNode, ""},
		"a pod that is not admitted": {nil, required, onNode, ""},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}}
		p.Spec.NodeSelector = c.selector
		if got := convert.KueueNode(p); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
