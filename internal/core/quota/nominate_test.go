package quota

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
)

func withPriority(n int32) func(*Pod) { return func(p *Pod) { p.Priority = n } }

// nominating is a tree in which train may use 100, uses 50, and has a nominated pod p of 40.
func nominating() *Account {
	a := tree(Rules{})
	a.Put(pending("much", "train", 100, withPriority(-1)))
	a.Put(pending("running", "train", 50, onNode))
	a.Put(pending("p", "train", 40, withPriority(5)))
	a.Nominate("p")
	return a
}

func TestWhatANominatedPodAsksForIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  Pod
		want bool
	}{
		"what is left above it":                {pending("q", "train", 10), true},
		"more, with a lower priority":          {pending("q", "train", 11, withPriority(4)), false},
		"more, with the same priority":         {pending("q", "train", 11, withPriority(5)), false},
		"more, with a higher priority":         {pending("q", "train", 50, withPriority(6)), true},
		"more than is left, in whichever case": {pending("q", "train", 51, withPriority(6)), false},
		"a pod of another quota":               {pending("q", "ads", 15), true},
	} {
		a := nominating()
		a.Put(c.pod)
		x := a.Admit("q")
		if (x == nil) != c.want {
			t.Errorf("%s: %v, want admitted: %t", name, x, c.want)
		}
		if again := a.Reserve("q"); (again == nil) != c.want {
			t.Errorf("%s: reserved: %v", name, again)
		}
	}

	a := nominating()
	a.Put(pending("q", "train", 11))
	want := []Shortage{{cpuName, 100, 90, 11}}
	if x := a.Admit("q"); x == nil || cmp.Diff(want, x.Shortages) != "" {
		t.Errorf("refused with %v, want what is used and held: %v", x, want)
	}
	if x := a.Admit("p"); x != nil {
		t.Errorf("the nominated pod itself: %v", x)
	}
	if x := a.Admit("p", "q"); x == nil || x.Shortages[0].Request != 51 || x.Shortages[0].Used != 50 {
		t.Errorf("both together: %v, want the request of both above what is used", x)
	}
}

// train may use 100, of which pods that are not preemptible may use its min of 20.
func TestWhatANominatedPodAsksForIsHeldOfMinToo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  Pod
		want *Shortage
	}{
		"what is left of min":     {pending("q", "train", 5, firm), nil},
		"more":                    {pending("q", "train", 6, firm), &Shortage{cpuName, 20, 15, 6}},
		"what is left of runtime": {pending("q", "train", 85), nil},
		"more than that":          {pending("q", "train", 86), &Shortage{cpuName, 100, 15, 86}},
	} {
		a := tree(Rules{})
		a.Put(pending("much", "train", 100, withPriority(-1)))
		a.Put(pending("p", "train", 15, firm, withPriority(5)))
		a.Nominate("p")
		a.Put(c.pod)
		switch x := a.Admit("q"); {
		case c.want == nil && x != nil:
			t.Errorf("%s: %v", name, x)
		case c.want != nil && (x == nil || cmp.Diff([]Shortage{*c.want}, x.Shortages) != ""):
			t.Errorf("%s: refused with %v, want %+v", name, x, *c.want)
		}
	}
}

func TestANominationEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Account){
		"by Withdraw":       func(a *Account) { a.Withdraw("p") },
		"with the pod":      func(a *Account) { a.Remove("p") },
		"by what is known":  func(a *Account) { a.Put(pending("p", "train", 40, withPriority(5))) },
		"in another quota":  func(a *Account) { a.Put(pending("p", "ads", 40, withPriority(5))) },
		"with a lower rank": func(a *Account) { a.Put(pending("p", "train", 40, withPriority(-5))); a.Nominate("p") },
	} {
		a := nominating()
		a.Put(pending("q", "train", 30))
		x := a.Admit("q")
		if x == nil || a.Grew("q", x) {
			t.Fatalf("%s: refused with %v, and nothing has changed: %t", name, x, x != nil && a.Grew("q", x))
		}
		end(a)
		if !a.Grew("q", x) || a.Admit("q") != nil {
			t.Errorf("%s: the pod wakes: %t, and is refused: %v", name, a.Grew("q", x), a.Admit("q"))
		}
	}
	a := nominating()
	a.Put(pending("q", "train", 11))
	x := a.Admit("q")
	if err := a.Reserve("p"); err != nil || a.Grew("q", x) || a.Admit("q") == nil {
		t.Errorf("the pod has what was held for it, %v; another wakes: %t", err, a.Grew("q", x))
	}
	a.Release("p")
	if a.Admit("q") == nil {
		t.Error("its bind failed, and others have what was held for it")
	}
}

// TestNominatedPodsDoNotBlockEachOther: one of two that do not fit together comes first.
func TestNominatedPodsDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	a := nominating()
	a.Put(pending("r", "train", 40, withPriority(5)))
	a.Nominate("r")
	if x, y := a.Admit("p"), a.Admit("r"); (x == nil) == (y == nil) {
		t.Errorf("p: %v, r: %v; want one of them", x, y)
	}
}

// TestAPreemptorLeavesRoomForThoseBeforeIt: its victims make room for both, unless pods that leave anyway do.
func TestAPreemptorLeavesRoomForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	leaving := func(p *Pod) { p.Leaving = true }
	for name, c := range map[string]struct {
		more []Pod
		asks int64
		want bool
	}{
		"room for both":       {asks: 60, want: true},
		"too little for both": {asks: 61},
		"a pod leaves for the nominated one": {
			more: []Pod{pending("l", "train", 45, onNode, leaving)}, asks: 60, want: true,
		},
	} {
		a := nominating()
		for _, p := range c.more {
			a.Put(p)
		}
		a.Put(pending("q", "train", c.asks, withPriority(4)))
		before := a.Hash()
		nodes, inside := a.VictimNodes("q")
		if !inside || nodes["n"] != c.want {
			t.Errorf("%s: nodes %v, want n: %t", name, nodes, c.want)
		}
		if a.Hash() != before {
			t.Errorf("%s: the question changed the account", name)
		}
	}
	a := nominating()
	a.Put(pending("q", "train", 20, withPriority(4)))
	trial := a.Try("q")
	a.Give(trial, "p")
	if a.AdmitTrial(trial) == nil {
		t.Error("50 used, 40 held and 20 are within 100")
	}
	a.Take(trial, "running")
	if x := a.AdmitTrial(trial); x != nil {
		t.Errorf("without its victim: %v", x)
	}
	a = nominating()
	a.Put(pending("q", "train", 10, withPriority(4)))
	a.Put(pending("l", "train", 45, onNode, leaving))
	if x := a.AdmitTrial(a.Try("q")); x != nil {
		t.Errorf("beside a pod that leaves: %v", x)
	}
	a.Put(pending("l", "train", 45, onNode))
	if a.AdmitTrial(a.Try("q")) == nil {
		t.Error("a pod that does not leave any more is not counted")
	}
}

// TestADryRunBeginsWithoutThePodsThatLeave compares with an account without these, where limits do not depend on what
// pods ask for: a pod is admitted in the dry run exactly if it is admitted there, and then no victim is looked for
// among those that leave.
func TestADryRunBeginsWithoutThePodsThatLeave(t *testing.T) {
	t.Parallel()
	helped := 0
	rapid.Check(t, func(rt *rapid.T) {
		live, without := tree(Rules{ByMax: true}), tree(Rules{ByMax: true})
		for i := range 10 {
			p := drawPod(rt, fmt.Sprint("p", i))
			p.Quota, p.Gang = rapid.SampledFrom([]string{"train", "train", "serve", "ads"}).Draw(rt, "quota"), ""
			p.Amounts = amount.List{cpuName: rapid.Int64Range(0, 40).Draw(rt, "CPUs")}
			p.Nominated = rapid.IntRange(0, 4).Draw(rt, "nominated") == 0
			live.Put(p)
			if !p.Leaving || p.Node == "" {
				without.Put(p)
			}
		}
		before := live.Hash()
		for i := range 10 {
			uid := fmt.Sprint("p", i)
			trial := live.Try(uid)
			if trial == nil {
				continue
			}
			got, want := live.AdmitTrial(trial) == nil, without.Admit(uid) == nil
			if got != want {
				rt.Errorf("%s is admitted in the dry run: %t, without the pods that leave: %t", uid, got, want)
			}
			if got && live.Admit(uid) != nil {
				helped++
			}
		}
		if live.Hash() != before {
			rt.Error("the dry runs changed the account")
		}
	})
	if helped == 0 {
		t.Error("no pod that fits when others have left")
	}
}
