package ledger

import (
	"testing"

	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestSummariesDifferByEveryField: the rebuilt account is held against the live one by them.
func TestSummariesDifferByEveryField(t *testing.T) {
	t.Parallel()
	var s Summary
	vary.Fill(&s, vary.Whole())
	same := s
	if !s.equal(&same) {
		t.Fatal("a summary differs from itself")
	}
	vary.Each(&s, vary.Whole(), func(field string) {
		if s.equal(&same) || same.equal(&s) {
			t.Errorf("Summary%s makes no difference", field)
		}
	})
}
