package ledger_test

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestNUMANodesAreSortedByTheirPods has 2 NUMA nodes: CPUs 0-7 and 8-15, siblings at +16.
func TestNUMANodesAreSortedByTheirPods(t *testing.T) {
	t.Parallel()
	remembering := lsr("m", "0")
	remembering.Amounts = []align.Amount{{NUMAID: 1, Resource: why.Memory, N: 1}}
	for name, c := range map[string]struct {
		entries           []ledger.Entry
		confined, spanned uint64
	}{
		"no pods":                              {},
		"exclusive CPUs of one NUMA node":      {[]ledger.Entry{lsr("a", "8,24")}, 0b10, 0},
		"exclusive CPUs of two":                {[]ledger.Entry{lse("a", "7-8")}, 0, 0b11},
		"shared pool of one":                   {[]ledger.Entry{confined("a", 1, 0)}, 0b01, 0},
		"shared pools of two":                  {[]ledger.Entry{confined("a", 1, 0, 1)}, 0, 0b11},
		"memory counts":                        {[]ledger.Entry{remembering}, 0, 0b11},
		"both kinds on a node":                 {[]ledger.Entry{lsr("a", "0"), lsr("b", "1,8")}, 0b01, 0b11},
		"the whole shared pool is not a place": {[]ledger.Entry{{UID: "a", Class: qos.LS}}, 0, 0},
	} {
		l := ledger.New(ledger.Facts{Machine: grid.Machine{Nodes: 2, Cores: 8, Threads: 2}.Build(t)})
		for _, e := range c.entries {
			l.Put(e)
		}
		live, rebuilt := l.View().Summary(), ledger.New(*l.View().Facts(), c.entries...).View().Summary()
		for _, s := range []*ledger.Summary{live, rebuilt} {
			if uint64(s.Confined) != c.confined || uint64(s.Spanned) != c.spanned {
				t.Errorf("%s: confined %b, spanned %b; want %b, %b", name, s.Confined, s.Spanned, c.confined, c.spanned)
			}
		}
		for _, e := range c.entries {
			l.Remove(e.UID)
		}
		if s := l.View().Summary(); s.Confined|s.Spanned != 0 {
			t.Errorf("%s: confined %b, spanned %b after the last pod left", name, s.Confined, s.Spanned)
		}
	}
}

// In Own mode a pod of the shared pool does not run on the CPUs that a static kubelet has recorded for it, but it uses
// the memory that the kubelet gave it.
func TestCPUsOfTheKubeletDoNotConfineInOwnMode(t *testing.T) {
	t.Parallel()
	memory := kubelet.HeldMemory{NUMAIDs: []int{1}, Type: "memory", Bytes: gibi}
	held := []kubelet.Held{{Container: "c", CPUList: "1", Memory: []kubelet.HeldMemory{memory}}}
	for name, test := range map[string]struct {
		mode              ledger.Mode
		pins              []tenancy.Grant
		confined, spanned uint64
	}{
		"own":             {ledger.Own, nil, 0b10, 0},
		"own, and pinned": {ledger.Own, []tenancy.Grant{pin("p", "1")}, 0, 0b11},
		"follow":          {ledger.Follow, nil, 0, 0b11},
	} {
		facts := follows(t, grid.Machine{Nodes: 2, Cores: 8, Threads: 2}.Build(t), hint.Restricted)
		facts.Mode = test.mode
		granted := tenancy.Grant{UID: "p", Placement: kubelet.PlacementOf(facts.Machine, held)}
		facts.Given = append(slices.Clone(test.pins), granted)
		s := ledger.New(facts, entryOf(guaranteed("p", 1, gibi, 0), 1, nil)).View().Summary()
		if uint64(s.Confined) != test.confined || uint64(s.Spanned) != test.spanned {
			t.Errorf("%s: confined %b, spanned %b; want %b, %b", name, s.Confined, s.Spanned, test.confined,
				test.spanned)
		}
	}
}
