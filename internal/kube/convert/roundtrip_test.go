package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func drawAskingPod(t *rapid.T) *corev1.Pod {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	pod := newPod(class(pick("class", "LSE", "LSR", "LSR", "LS", "", "BE")))
	if spec := pick("spec", "", `{}`, `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`,
		`{"requiredCPUBindPolicy":"FullPCPUs"}`,
		`{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`,
		`{"preferredCPUBindPolicy":"ConstrainedBurst"}`); spec != "" {
		annot(annotation.ResourceSpecKey, spec)(pod)
	}
	if policy := pick("policy", "", "", "Restricted", "SingleNUMANode"); policy != "" {
		annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"`+policy+`"}`)(pod)
	}
	amount := func() string { return pick("cpu", "1", "2", "2", "3", "1500m") }
	for range rapid.IntRange(0, 2).Draw(t, "init containers") {
		initContainer(amount(), rapid.Bool().Draw(t, "sidecar"))(pod)
	}
	for range rapid.IntRange(1, 2).Draw(t, "containers") {
		limit := amount()
		bounded(pick("request", limit, limit, "500m"), limit)(pod)
	}
	return pod
}

// TestWhatIsCommittedIsWhatIsReadBack is K1, and the part of L6 that crosses the API: the entry that Reserve commits is
// the one that the bound pod with its new annotation is read as, and the agent sees the same.
func TestWhatIsCommittedIsWhatIsReadBack(t *testing.T) {
	t.Parallel()
	bound, confined, byNode, remembered := 0, 0, 0, 0
	property := func(t *rapid.T) {
		pod := drawAskingPod(t)
		args := convert.DefaultArgs()
		args.BindAllPodsOnPolicyNodes = rapid.Bool().Draw(t, "bind all")
		args.DefaultExclusive = rapid.SampledFrom([]cpualloc.Exclusive{0, 1, 2}).Draw(t, "default exclusive")
		facts := ledger.Facts{
			Machine:  drawMachine(t),
			Bind:     rapid.SampledFrom([]ledger.NodeBind{0, 1, 2, 3}).Draw(t, "node bind"),
			Topology: rapid.SampledFrom([]hint.Policy{0, 0, 1, 2, 3}).Draw(t, "node policy"),
			Model:    kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{Static: rapid.Bool().Draw(t, "static")}}},
		}
		for n := range facts.Machine.NumNUMA() {
			if gib := rapid.SampledFrom([]int64{0, 1, 2, 5}).Draw(t, "memory"); gib > 0 {
				facts.Amounts = append(facts.Amounts, align.Amount{
					NUMAID:   facts.Machine.NUMAID(topo.NUMA(n)),
					Resource: "memory", N: gib<<30 + 7,
				})
			}
		}
		r, reason, _ := convert.Request(pod, args)
		if !reason.OK() {
			return
		}
		view := ledger.New(facts).View()
		offer, reason := place.Try(view, r)
		if !reason.OK() {
			return
		}
		pod.Spec.NodeName = "n"
		status := convert.Status(view.Machine(), view, r, offer)
		if text := annotation.Encode(status); text != "{}" {
			annot(annotation.ResourceStatusKey, text)(pod)
		}
		entry, concerns := convert.EntryUnder(args, pod)
		want := offer.Entry
		if diff := cmp.Diff(want, entry); diff != "" && !want.Equal(entry) {
			t.Fatalf("status %v is read as another entry (-committed +read):\n%s", status, diff)
		}
		if holds := want.CPUList != "" || want.NUMAIDs != nil || want.Guest != nil; holds != concerns {
			t.Fatalf("the account needs %+v: %v, got %v", want, holds, concerns)
		}
		if problems := convert.ReadPod(pod).Problems; problems != nil {
			t.Fatalf("our own annotation has problems: %v", problems)
		}
		if len(want.Amounts) > 0 {
			remembered++
		}
		switch {
		case want.CPUList != "" && want.Class != qos.LSE && want.Class != qos.LSR:
			byNode++
		case want.CPUList != "":
			bound++
		case want.NUMAIDs != nil:
			confined++
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 30 {
			property(t)
		}
	})
	if bound == 0 || confined == 0 || byNode == 0 || remembered == 0 {
		t.Errorf("%d bound, %d confined, %d bound by their node, %d with memory: the generator is too narrow", bound,
			confined, byNode, remembered)
	}
}
