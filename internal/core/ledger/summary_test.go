package ledger

import (
	"testing"

	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestSummariesDifferByEveryField: the rebuilt account is held against the live one by them.
func TestSummariesDifferByEveryField(t *testing.T) {
	t.Parallel()
	var s Summary
	kinds := vary.Whole()
	vary.Fill(&s, kinds)
	same := s
	if !s.equal(&same) {
		t.Fatal("a summary differs from itself")
	}
	vary.Each(&s, kinds, func(field string) {
		if s.equal(&same) || same.equal(&s) {
			t.Errorf("Summary%s makes no difference", field)
		}
	})
}
