package claim

import "testing"

func TestAClaimEndsWithItsLastPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reservedFor, gone string
		want              bool
	}{
		"its only pod":          {"a", "a", true},
		"all of its pods":       {"ab", "bca", true},
		"one of its pods":       {"ab", "a", false},
		"other pods":            {"a", "bc", false},
		"no pod":                {"a", "", false},
		"reserved for no pod":   {"", "a", false},
		"none, and no pod goes": {"", "", false},
	} {
		gone := map[string]bool{}
		for _, uid := range c.gone {
			gone[string(uid)] = true
		}
		var users []string
		for _, uid := range c.reservedFor {
			users = append(users, string(uid))
		}
		if got := EndsWith(users, func(uid string) bool { return gone[uid] }); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
