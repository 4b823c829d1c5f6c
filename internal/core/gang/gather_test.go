package gang_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestMembersAreGathered: gang 0 has the members a, b, c, and gang 1 has d, e, f; two of each must run.
func TestMembersAreGathered(t *testing.T) {
	t.Parallel()
	must, prefer := domain.Rule{Label: "zone", Must: true}, domain.Rule{Label: "zone"}
	rack := domain.Rule{Layer: "rack", Must: true}
	request := func(least int, members []string, rules ...domain.Rule) *domain.Request {
		return &domain.Request{Members: members, Min: least, Rules: rules}
	}
	ofA := []string{"a", "b", "c"}
	for name, c := range map[string]struct {
		before []*domain.Request
		uids   []string
		must   bool
		want   []*domain.Request
	}{
		"a gang":                      {nil, ofA, true, []*domain.Request{request(2, ofA, must)}},
		"a gang that prefers it":      {nil, ofA, false, []*domain.Request{request(2, ofA, prefer)}},
		"two of them":                 {nil, ofA[:2], true, []*domain.Request{request(1, ofA[:2], must)}},
		"one of them, which may fail": {nil, ofA[:1], true, []*domain.Request{request(0, ofA[:1], must)}},
		"members of two gangs": {
			nil,
			[]string{"a", "b", "c", "d", "e"},
			true,
			[]*domain.Request{request(3, []string{"a", "b", "c", "d", "e"}, must)},
		},
		"a gang with a rule": {
			[]*domain.Request{request(2, ofA, rack)}, ofA, true, []*domain.Request{request(2, ofA, rack, must)},
		},
		"a part of a gang with a rule": {
			[]*domain.Request{request(2, ofA, rack)}, ofA[:2], true, []*domain.Request{request(2, ofA, rack, prefer)},
		},
		"a gang with a rule, and another": {
			[]*domain.Request{request(2, ofA, rack)},
			[]string{"a", "b", "c", "d"},
			true,
			[]*domain.Request{request(2, ofA, rack, prefer), request(0, []string{"d"}, prefer)},
		},
		"not the gang with the rule": {
			[]*domain.Request{request(2, ofA, rack)},
			[]string{"d", "e", "f"},
			true,
			[]*domain.Request{request(2, ofA, rack), request(2, []string{"d", "e", "f"}, must)},
		},
	} {
		p := gang.PlanOf([]int{2, 2}, [][]string{{"a", "b", "c"}, {"d", "e", "f"}})
		p.DomainRequests = c.before
		p.Gather(c.uids, []string{"zone"}, c.must)
		if d := cmp.Diff(c.want, p.DomainRequests); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
