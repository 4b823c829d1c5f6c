package event_test

import (
	"testing"

	"github.com/tenon-project/tenon/api/event"
)

func TestEveryReasonIsDescribed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range event.List() {
		if e.Name == "" || e.From == "" || e.On == "" || e.Means == "" {
			t.Errorf("%+v lacks its name, sender, object or meaning", e)
		}
		if !e.Normal && e.Does == "" {
			t.Errorf("%s: the list does not say what %s does", e.Name, e.From)
		}
		if seen[e.Name] {
			t.Errorf("%s is listed twice", e.Name)
		}
		seen[e.Name] = true
		r, ok := event.Parse(e.Name)
		if !ok || r.String() != e.Name || r.Entry() != e {
			t.Errorf("Parse(%q) = %v, %t", e.Name, r, ok)
		}
		isByChoice := r == event.GPUIsolationWeak || r == event.BestEffortSuppressed
		if e.Condition && e.Normal && !isByChoice {
			t.Errorf("%s: a condition that holds is a Warning", e.Name)
		}
	}
	for _, name := range []string{"", "Nonsense"} {
		if r, ok := event.Parse(name); ok {
			t.Errorf("Parse(%q) = %v, want none", name, r)
		}
	}
	if event.Drifted.Type() != "Warning" || event.DriftRepaired.Type() != "Normal" {
		t.Errorf("types are %s and %s, want Warning and Normal", event.Drifted.Type(), event.DriftRepaired.Type())
	}
}
