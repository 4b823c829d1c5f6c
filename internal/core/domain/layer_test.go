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
	clique := map[string]string{"net/block": "b", domain.GPUCliqueLabel: "f.1"}
	empty := map[string]string{"net/block": "b", domain.GPUCliqueLabel: ""}
	named := map[string]string{"fabric": "a", domain.GPUCliqueLabel: "f.1"}
	cliques, within := domain.Rule{Layer: domain.GPUCliqueLayer}, domain.NewLayers([]domain.Layer{
		{Name: domain.GPUCliqueLayer, Parent: "block"}, {Name: "block", Labels: []string{"net/block"}},
	})
	fabric := domain.NewLayers([]domain.Layer{{Name: domain.GPUCliqueLayer, Labels: []string{"fabric"}}})
	for name, c := range map[string]struct {
		layers *domain.Layers
		labels map[string]string
		want   string
	}{
		"of no list":                        {&domain.Layers{}, clique, "f.1"},
		"of a list without it":              {layers, clique, "f.1"},
		"in a layer of the list":            {within, clique, "b/f.1"},
		"with labels of the list":           {fabric, named, "a"},
		"an empty label":                    {&domain.Layers{}, empty, ""},
		"an empty label in a layer":         {within, empty, ""},
		"no label":                          {within, map[string]string{"net/block": "b"}, ""},
		"no label of the list, but its own": {fabric, clique, ""},
	} {
		t.Run("clique "+name, func(t *testing.T) {
			if got := c.layers.DomainOf(cliques, "n", c.labels); got != c.want || !c.layers.Knows(cliques) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
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

// TestInnerLayersAreDeeper: GPU cliques are within all layers of the list, or where the list puts them.
func TestInnerLayersAreDeeper(t *testing.T) {
	t.Parallel()
	const cliques = domain.GPUCliqueLayer
	for name, c := range map[string]struct {
		list []domain.Layer
		want []string // from the outermost
	}{
		"not in the list": {
			[]domain.Layer{{Name: "block", Parent: "spine"}, {Name: "spine"}},
			[]string{domain.ClusterLayer, "spine", "block", cliques, domain.NodeLayer},
		},
		"in the list": {
			[]domain.Layer{{Name: "tray", Parent: cliques}, {Name: cliques, Parent: "spine"}, {Name: "spine"}},
			[]string{domain.ClusterLayer, "spine", cliques, "tray", domain.NodeLayer},
		},
		"a parent in the list": {
			[]domain.Layer{{Name: "slot", Parent: "tray"}, {Name: "tray", Parent: cliques}},
			[]string{domain.ClusterLayer, cliques, "tray", "slot", domain.NodeLayer},
		},
	} {
		t.Run(name, func(t *testing.T) {
			layers := domain.NewLayers(c.list)
			for i, inner := range c.want[1:] {
				outer := c.want[i]
				if layers.Depth(domain.Rule{Layer: inner}) <= layers.Depth(domain.Rule{Layer: outer}) {
					t.Errorf("%s is not within %s", inner, outer)
				}
			}
		})
	}
}
