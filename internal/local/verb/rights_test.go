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
	compareRights(t, "descheduler", "{{- if contains", "\n---\n", pluginRights)
}

// TestTheProfilesOfALocalClusterHaveTheRightsOfTheChart: the chart gives them where the scheduler has a configuration.
func TestTheProfilesOfALocalClusterHaveTheRightsOfTheChart(t *testing.T) {
	t.Parallel()
	compareRights(t, "scheduler", "{{- with .Values.scheduler.config }}", "{{- end }}", profileRights)
}

// TestTheScaleHelperOfALocalClusterHasTheRightsOfTheChart: both give them where the manager has the setting.
func TestTheScaleHelperOfALocalClusterHasTheRightsOfTheChart(t *testing.T) {
	t.Parallel()
	compareRights(t, "manager", "{{- if .Values.manager.scaleHelper }}", "{{- end }}", helperRights)
}

// compareRights finds the resources of optional rights of the chart, between two texts, in those of a local cluster.
func compareRights(t *testing.T, component, from, to, given string) {
	t.Helper()
	chart, err := os.ReadFile("../../../deploy/chart/templates/" + component + "-rbac.yaml")
	testkit.Check(t, err)
	_, optional, found := strings.Cut(string(chart), from)
	if !found {
		t.Fatal("the chart has no right that depends on a setting")
	}
	optional, _, _ = strings.Cut(optional, to)
	for _, m := range regexp.MustCompile(`resources: \[(.+)\]`).FindAllStringSubmatch(optional, -1) {
		for _, resource := range strings.Split(m[1], ", ") {
			if !strings.Contains(given, resource) {
				t.Errorf("a local cluster gives no right on %s", resource)
			}
		}
	}
}
