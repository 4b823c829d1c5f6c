package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// imported are the facts of a node that only an exporter describes: CPU 0 is reserved, busy CPUs are allocated.
func imported(tb interface {
	Helper()
	Fatalf(string, ...any)
}, pins []tenancy.Grant, unclaimed cpuset.Set,
) ledger.Facts {
	m := grid.Machine{Nodes: 2, Cores: 4}.Build(tb)
	f := follows(tb, m, hint.None)
	f.Model.Gen, f.Imported, f.Given = 0, true, slices.Clone(pins)
	if !unclaimed.IsEmpty() {
		f.Given = append(f.Given, tenancy.Grant{CPUs: unclaimed})
	}
	return f
}

// TestUnclaimedCPUsBelongToThePodsThatHaveNone: an exporter that reports free CPUs, and no pods, leaves the
// account as exact as one that reports everything.
func TestUnclaimedCPUsBelongToThePodsThatHaveNone(t *testing.T) {
	t.Parallel()
	a, b := guaranteed("a", 2, gibi, 0), guaranteed("b", 1, gibi, 0)
	for name, c := range map[string]struct {
		pins      []tenancy.Grant
		unclaimed cpuset.Set
		entries   []ledger.Entry
		want      cpuset.Set // what the kubelet has given away
	}{
		"both pods have what is busy, wherever that is": {
			unclaimed: cpuset.Of(3, 6, 7), entries: []ledger.Entry{entryOf(a, 1, nil), entryOf(b, 2, nil)},
			want: cpuset.Of(3, 6, 7),
		},
		"a pod that came after the report is computed in addition to it": {
			unclaimed: cpuset.Of(4, 5), entries: []ledger.Entry{entryOf(a, 1, nil), entryOf(b, 2, nil)},
			want: cpuset.Of(4, 5, 6),
		},
		"what no pod here can have remains allocated": {unclaimed: cpuset.Of(1, 2), want: cpuset.Of(1, 2)},
		"a pin without UID is its pod's": {
			pins:    []tenancy.Grant{{Namespace: "ns", Name: "a", CPUs: cpuset.Of(5, 6)}},
			entries: []ledger.Entry{entryOf(a, 1, nil), entryOf(b, 2, nil)}, want: cpuset.Of(4, 5, 6),
		},
		"a pin by UID corrects a prediction": {
			pins: []tenancy.Grant{{UID: "a", CPUs: cpuset.Of(6, 7)}}, want: cpuset.Of(6, 7),
			entries: []ledger.Entry{entryOf(a, 1,
				&tenancy.Prediction{Model: "1.36", Held: []kubelet.Held{{Container: "c", CPUList: "1-2"}}})},
		},
		"a prediction that is busy as it was predicted counts once": {
			unclaimed: cpuset.Of(1, 2), want: cpuset.Of(1, 2),
			entries: []ledger.Entry{entryOf(a, 1,
				&tenancy.Prediction{Model: "1.36", Held: []kubelet.Held{{Container: "c", CPUList: "1-2"}}})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ledger.New(imported(t, c.pins, c.unclaimed), c.entries...).View()
			if got := v.KubeletStatic(); got != c.want {
				t.Errorf("the kubelet has given away %s, want %s", v.Machine().FormatList(got),
					v.Machine().FormatList(c.want))
			}
			_, p, refusal := v.Kubelet().Admit(guaranteed("next", 7-c.want.Len(), gibi, 0))
			if refusal != nil {
				t.Fatalf("a pod of all that is left is refused: %+v", refusal)
			}
			if given := p[0].CPUs; given.Overlaps(&c.want) {
				t.Errorf("the next pod gets %s of the taken %s", v.Machine().FormatList(given),
					v.Machine().FormatList(c.want))
			}
			facts := *v.Facts()
			facts.Model = kubelet.Facts{Config: kubelet.Config{CPU: facts.Model.Config.CPU}}
			count(t, &facts)
			if free := freeOfKubelet(ledger.New(facts, c.entries...).View()); free != 7-c.want.Len() {
				t.Errorf("counted without the model %d CPUs are left, want %d", free, 7-c.want.Len())
			}
		})
	}
}

// TestPinsAreTheCPUsThatTheNodeReportsOfPods: not those of no pod, and no more of them than the caller wants.
func TestPinsAreTheCPUsThatTheNodeReportsOfPods(t *testing.T) {
	t.Parallel()
	pins := []tenancy.Grant{
		{UID: "a", CPUs: cpuset.Of(1, 2)}, {UID: "b", CPUs: cpuset.Of(4)}, {UID: "c", CPUs: cpuset.Of(6)},
	}
	v := ledger.New(imported(t, pins, cpuset.Of(3))).View()
	for most := 1; most <= len(pins); most++ {
		var got []string
		for pin := range v.Pins() {
			got = append(got, pin.UID+" "+v.Machine().FormatList(pin.CPUs))
			if len(got) == most {
				break
			}
		}
		if diff := cmp.Diff([]string{"a 1-2", "b 4", "c 6"}[:most], got); diff != "" {
			t.Errorf("the first %d (-want +got):\n%s", most, diff)
		}
	}
}

// TestAnImportedAccountEqualsARebuild: pods and reports in any order lead to the account that is made of the last ones,
// and CPUs that an exporter reports as busy are given to no pod.
func TestAnImportedAccountEqualsARebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func() ledger.Facts {
			var pins []tenancy.Grant
			var busy, unclaimed cpuset.Set
			for c := 1; c < 8; c++ {
				switch rapid.IntRange(0, 5).Draw(t, "cpu") {
				case 1:
					pins = append(pins, tenancy.Grant{
						UID:  fmt.Sprintf("u%d", rapid.IntRange(0, 3).Draw(t, "of")),
						CPUs: cpuset.Of(c),
					})
					busy.Add(c)
				case 2:
					pins = append(pins, tenancy.Grant{
						Namespace: "ns",
						Name:      fmt.Sprintf("u%d", rapid.IntRange(0, 3).Draw(t, "of")), CPUs: cpuset.Of(c),
					})
					busy.Add(c)
				case 3:
					unclaimed.Add(c)
				}
			}
			return imported(t, pins, unclaimed)
		}
		facts := draw()
		live := ledger.New(facts)
		entries := map[string]ledger.Entry{}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			uid := fmt.Sprintf("u%d", rapid.IntRange(0, 3).Draw(t, "uid"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				p := guaranteed(uid, rapid.IntRange(1, 3).Draw(t, "cpus"), gibi, 0)
				if offer, ok := predict(live.View().Without(uid), p, 1); ok && rapid.Bool().Draw(t, "ours") {
					entries[uid] = offer.Entry
				} else {
					entries[uid] = entryOf(p, int64(rapid.IntRange(0, 2).Draw(t, "created")), nil)
				}
				live.Put(entries[uid])
			case 1:
				delete(entries, uid)
				live.Remove(uid)
			default:
				facts = draw()
				live.SetFacts(facts)
			}
			var list []ledger.Entry
			for _, e := range entries {
				list = append(list, e)
			}
			rebuilt := ledger.New(facts, list...).View()
			if v := live.View(); !v.Equal(rebuilt) {
				t.Fatalf("the live account gives away %s, the rebuilt one %s",
					v.Machine().FormatList(v.KubeletStatic()), rebuilt.Machine().FormatList(rebuilt.KubeletStatic()))
			}
			if diff := cmp.Diff(answers(rebuilt), answers(live.View())); diff != "" {
				t.Fatalf("the live account answers otherwise than the rebuilt one (-rebuilt +live):\n%s", diff)
			}
			v := live.View()
			taken := tenancy.UnattributedCPUs(facts.Given)
			for _, e := range list {
				for _, pin := range facts.Given {
					if pin.UID == e.UID || pin.UID == "" && pin.Name == e.Name {
						taken.Include(&pin.CPUs)
					}
				}
			}
			if _, p, refusal := v.Kubelet().Admit(guaranteed("z", 1, gibi, 0)); refusal == nil &&
				slices.ContainsFunc(p, func(g kubelet.Given) bool { return g.CPUs.Overlaps(&taken) }) {
				t.Fatalf("a pod gets %s, of which the exporter calls %s busy", v.Machine().FormatList(p[0].CPUs),
					v.Machine().FormatList(taken))
			}
		}
	})
}
