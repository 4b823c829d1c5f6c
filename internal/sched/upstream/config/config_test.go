package config

import "testing"

func TestEnables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  Set
		want bool
	}{
		"among others":               {Set{Enabled: []Plugin{{Name: "A"}, {Name: "P"}}}, true},
		"not at all":                 {Set{Enabled: []Plugin{{Name: "A"}}}, false},
		"disabled":                   {Set{Disabled: []Plugin{{Name: "P"}}}, false},
		"in the place of all others": {Set{Enabled: []Plugin{{Name: "P"}}, Disabled: []Plugin{{Name: "*"}}}, true},
	} {
		if got := Enables(c.set, "P"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
