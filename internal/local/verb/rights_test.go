package verb

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestThePluginsOfALocalClusterHaveTheRightsOfTheChart: the chart gives rights for single settings of the descheduler,
// a local cluster gives all of them.
func TestThePluginsOfALocalClusterHaveTheRightsOfTheChart(t *testing.T) {
	t.Parallel()
	chart, err := os.ReadFile("../../../deploy/chart/templates/descheduler-rbac.yaml")
	testkit.Check(t, err)
	_, optional, found := strings.Cut(string(chart), "{{- if contains")
	if !found {
		t.Fatal("the chart has no right that depends on a setting")
	}
	optional, _, _ = strings.Cut(optional, "\n---\n")
	for _, m := range regexp.MustCompile(`resources: \[(.+)\]`).FindAllStringSubmatch(optional, -1) {
		for _, resource := range strings.Split(m[1], ", ") {
			if !strings.Contains(pluginRights, resource) {
				t.Errorf("a local cluster gives no right on %s", resource)
			}
		}
	}
}
