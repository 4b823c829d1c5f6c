package verb

import (
	"strings"
	"testing"
)

func TestAControlPlaneForOthersNeedsTheirNames(t *testing.T) {
	c := newJoin()
	c.SetArgs([]string{"--data", t.TempDir()})
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--node is missing") {
		t.Errorf("error is %v, want one that names --node", err)
	}
}
