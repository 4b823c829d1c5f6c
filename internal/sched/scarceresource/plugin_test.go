package scarceresource_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/scarceresource"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// amounts returns 1 of each of these resources.
func amounts(names string) (all []string) {
	for name := range strings.FieldsSeq(names) {
		all = append(all, name, "1")
	}
	return all
}

// TestNodesAreScoredByTheNamesOfTheirResources with the formula of Koordinator.
func TestNodesAreScoredByTheNamesOfTheirResources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources  string
		asks, node string // names of resources
		want       int64
	}{
		"a node with nothing else":        {`["g"]`, "cpu", "cpu", 100},
		"no scarce resource on the node":  {`["g"]`, "cpu", "cpu memory", 100},
		"no scarce resource is named":     {`[]`, "cpu", "cpu g", 100},
		"one of two is scarce":            {`["g"]`, "cpu", "cpu memory g", 50},
		"one of three is scarce":          {`["g"]`, "cpu", "cpu memory h g", 66},
		"all are scarce":                  {`["g","h"]`, "cpu", "cpu g h", 0},
		"the pod requests what is scarce": {`["g"]`, "cpu g", "cpu memory g", 100},
	} {
		raw := &runtime.Unknown{Raw: []byte(`{"resources":` + c.resources + `}`)}
		p, err := scarceresource.New(t.Context(), raw, nil)
		testkit.Check(t, err)
		n := framework.NewNodeInfo()
		n.SetNode(object.Node("n", nil, amounts(c.node)...))
		pod := object.Pod("p", object.Requests(amounts(c.asks)...))
		got, status := p.(fwk.ScorePlugin).Score(t.Context(), nil, pod, n)
		if got != c.want || !status.IsSuccess() {
			t.Errorf("%s: score %d (%v), want %d", name, got, status, c.want)
		}
	}
}
