package cli

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// refusedHints is a restricted kubelet on which CPU and memory do not meet.
func refusedHints() view.Hints {
	return view.Hints{
		Node: "epyc-2s-0", Mode: "Follow",
		Kubelet: &view.KubeletHints{
			Release: "1.36", Policy: "restricted", Scope: "container", Status: "TopologyAffinityError",
			Container: "main",
			Assumed: []string{
				"kubelet 1.38 is newer than the newest model, 1.37", "CPU manager option pack=true is not known",
			},
			Steps: []view.HintStep{{
				Container: "init",
				Given: &view.Given{
					CPUs: "1", NUMA: []int{0},
					Memory: []view.GivenBlock{{Resource: "memory", Amount: 1 << 30, NUMA: []int{0}}},
				},
			}, {
				Container: "main", Cause: "Disjoint",
				Text: "restricted: cpu and memory each need 1 node: no common preferred mask", Seconds: 3.2,
				Resources: []view.HintResource{
					{Resource: "cpu", Needs: 1, Hints: []view.Hint{
						{NUMA: []int{0}, Preferred: true},
						{NUMA: []int{0, 1}},
					}},
					{Resource: "memory", Needs: 1, Hints: []view.Hint{
						{NUMA: []int{1}, Preferred: true},
						{NUMA: []int{0, 1}},
					}},
					{Resource: "nvidia.com/gpu", Any: true, Hints: []view.Hint{}},
				},
				Merged: &view.MergedHint{Hint: view.Hint{NUMA: []int{0}}, Certainty: "approximate"},
			}},
			Refusal: &why.Wire{
				Code:    why.KubeletTopologyAffinity,
				Message: "the kubelet would answer TopologyAffinityError",
			},
		},
		Notes: []string{"the pod holds the node: this is what would be decided without it"},
	}
}

func ownHints() view.Hints {
	return view.Hints{
		Node: "xeon-2s-0", Mode: "Own",
		Alignment: &view.Alignment{
			Policy: "Restricted", Allows: 1, NUMA: []int{0, 8}, Chosen: []int{8},
			Rows: []view.AlignmentRow{
				{Resource: "cpu", Need: 4, Have: []int64{2, 12}, Needs: 1},
				{Resource: "memory", Need: 8 << 30, Have: []int64{1 << 30, 64 << 30}, Needs: 1},
				{Resource: "pool-left", Need: 1500, Have: []int64{0, 12000}},
			},
		},
	}
}

func TestHintsAsGolden(t *testing.T) {
	r := renderer{}
	golden(t, "hints-refused.txt", r.hints("ns/p", refusedHints()))
	golden(t, "hints-own.txt", r.hints("ns/p", ownHints()))
	var out strings.Builder
	testkit.Check(t, printAnswer(&out, "json", refusedHints(), nil))
	golden(t, "hints-refused.json", out.String())
	r.width, r.ascii = 60, true
	narrow := r.hints("ns/p", refusedHints())
	said := strings.Join(strings.Fields(narrow), " ")
	if want := refusedHints().Kubelet.Refusal.Message; !strings.Contains(said, want) {
		t.Errorf("lacks %q:\n%s", want, narrow)
	}
	for _, line := range strings.Split(narrow, "\n") {
		if len([]rune(line)) > 60 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
}

func TestHintsShowTwentyMasksUnlessAllAreAskedFor(t *testing.T) {
	h := refusedHints()
	step := &h.Kubelet.Steps[1]
	step.Resources[0].Hints = nil
	for i := range 30 {
		step.Resources[0].Hints = append(step.Resources[0].Hints, view.Hint{NUMA: []int{i}})
	}
	r := renderer{}
	if text := r.hints("ns/p", h); !strings.Contains(text, "11 more masks: --all shows them") { // 30 and {0,1}
		t.Errorf("masks are not cut:\n%s", text)
	}
	r.everything = true
	if text := r.hints("ns/p", h); strings.Contains(text, "more masks") || !strings.Contains(text, "\n  29 ") {
		t.Errorf("not all masks are shown:\n%s", text)
	}
}
