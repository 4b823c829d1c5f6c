package domain_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/domain"
)

func TestDomainsOfNodes(t *testing.T) {
	t.Parallel()
	layers := domain.NewLayers([]domain.Layer{
		{Name: "block", Parent: "spine", Labels: []string{"net/block", "old/block"}},
		{Name: "spine", Labels: []string{"net/spine"}},
		{Name: "spine", Labels: []string{"other"}},
		{Name: "x", Parent: "y", Labels: []string{"x"}},
		{Name: "y", Parent: "x", Labels: []string{"y"}},
		{Name: "bare"},
	})
	both := map[string]string{"net/block": "b", "old/block": "c"}
	labels := map[string]string{"net/spine": "s1", "old/block": "b1", "x": "1", "y": "2"}
	for name, c := range map[string]struct {
		rule   domain.Rule
		labels map[string]string
		want   string
	}{
		"a label":                          {domain.Rule{Label: "net/spine"}, labels, "s1"},
		"a label that is not there":        {domain.Rule{Label: "rack"}, labels, ""},
		"the outermost layer":              {domain.Rule{Layer: "spine"}, labels, "s1"},
		"a layer in another, second label": {domain.Rule{Layer: "block"}, labels, "s1/b1"},
		"the first label counts":           {domain.Rule{Layer: "block"}, both, "b"},
		"in the outer layer alone":         {domain.Rule{Layer: "block"}, map[string]string{"net/spine": "s1"}, ""},
		"each node":                        {domain.Rule{Layer: domain.NodeLayer}, nil, "n"},
		"the cluster":                      {domain.Rule{Layer: domain.ClusterLayer}, nil, domain.ClusterLayer},
		"layers in each other":             {domain.Rule{Layer: "x"}, labels, "2/1"},
		"a layer without labels":           {domain.Rule{Layer: "bare"}, labels, ""},
		"a layer that is not known at all": {domain.Rule{Layer: "zone"}, labels, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := layers.DomainOf(c.rule, "n", c.labels)
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
