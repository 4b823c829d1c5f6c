package gang_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestChargesAreTheVictimsOfEachBudget compares with the chosen victims counted again after each step.
func TestChargesAreTheVictimsOfEachBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		budgets := []*gang.Budget{{}, {}, {}}
		for _, b := range budgets {
			b.Allowed = rapid.IntRange(-1, 3).Draw(t, "allowed")
		}
		charges, chosen := gang.Charges{}, [][]*gang.Budget(nil)
		exceeded := func(among []*gang.Budget) bool {
			for _, b := range among {
				n := 0
				for _, victim := range chosen {
					if slices.Contains(victim, b) {
						n++
					}
				}
				if n > 0 && n > b.Allowed {
					return true
				}
			}
			return false
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if len(chosen) > 0 && rapid.Bool().Draw(t, "spare") {
				i := rapid.IntRange(0, len(chosen)-1).Draw(t, "which")
				charges.Remove(chosen[i])
				chosen = slices.Delete(chosen, i, i+1)
			} else {
				victim := slices.DeleteFunc(slices.Clone(budgets), func(*gang.Budget) bool {
					return rapid.Bool().Draw(t, "not counted")
				})
				chosen = append(chosen, victim)
				if got, want := charges.Add(victim), exceeded(victim); got != want {
					t.Fatalf("victims %v: violates %v, want %v", chosen, got, want)
				}
			}
			if got, want := charges.Exceed(), exceeded(budgets); got != want {
				t.Fatalf("victims %v: exceeded %v, want %v", chosen, got, want)
			}
		}
	})
}
