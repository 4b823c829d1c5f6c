package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// settingsOf returns the settings in force by field.
func settingsOf(t *testing.T, s *Scheduler) (byField map[string]view.Setting, text string) {
	t.Helper()
	c, err := s.configuration()
	testkit.Check(t, err)
	if !slices.IsSortedFunc(c.Settings, func(a, b view.Setting) int { return strings.Compare(a.Field, b.Field) }) {
		t.Error("the settings are not sorted")
	}
	byField = map[string]view.Setting{}
	for _, one := range c.Settings {
		if again, twice := byField[one.Field]; twice {
			t.Errorf("%s is there twice: %v, %v", one.Field, again, one)
		}
		byField[one.Field] = one
	}
	out, err := json.Marshal(c)
	testkit.Check(t, err)
	return byField, string(out)
}

func checkSettings(t *testing.T, got map[string]view.Setting, want map[string][2]string) {
	t.Helper()
	for field, w := range want {
		if s := got[field]; s.Value != w[0] || s.Origin != w[1] {
			t.Errorf("%s = %q from %q, want %q from %q", field, s.Value, s.Origin, w[0], w[1])
		}
	}
}

func TestEachSettingHasItsOrigin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection:\n" +
		"  leaderElect: false\n  resourceName: mine\n" +
		"clientConnection: {kubeconfig: " + writeKubeconfig(t) + "}\n" +
		"extenders:\n- urlPrefix: https://me:hush1@extender.example/x?token=hush2\n  enableHTTPS: true\n" +
		"  tlsConfig: {insecure: true}\n" +
		"profiles:\n- schedulerName: a\n" +
		"  plugins: {multiPoint: {enabled: [{name: Greeter}, {name: NodeNUMAResource, weight: 3}]}}\n" +
		"  pluginConfig:\n" +
		"  - name: NodeNUMAResource\n    args:\n      defaultCPUBindPolicy: SpreadByPCPUs\n" +
		"  - name: NodeAffinity\n    args: {addedAffinity: {}}\n" +
		"  - name: Greeter\n    args: {password: hush4}\n"
	testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	s := newSchedulerWith(t, []Option{WithPlugin("Greeter", newGreeter)}, "--config="+file,
		"--leader-elect-resource-name=other", "--kube-api-qps=7", "--ranking-memory-mb=5")
	tls := s.config.ComponentConfig.Extenders[0].TLSConfig
	tls.KeyData, tls.CertData = []byte("hush3"), []byte("hush3")
	got, out := settingsOf(t, s)
	const profile, fit, args = "profiles[0].", "profiles[0].pluginConfig[NodeResourcesFit].args.",
		"profiles[0].pluginConfig[NodeNUMAResource].args."
	checkSettings(t, got, map[string][2]string{
		"leaderElection.leaderElect":                                    {"false", "--leader-elect"},
		"leaderElection.resourceName":                                   {"other", "--leader-elect-resource-name"},
		"extenders[0].enableHTTPS":                                      {"true", file + ":9"},
		"leaderElection.retryPeriod":                                    {"2s", "default"},
		"extenders[0].urlPrefix":                                        {"https://extender.example/x", file + ":8"},
		profile + "schedulerName":                                       {"a", file + ":12"},
		args + "defaultCPUBindPolicy":                                   {"SpreadByPCPUs", file + ":17"},
		args + "defaultCPUExclusivePolicy":                              {"None", "default"},
		profile + "plugins.multiPoint.enabled[NodeNUMAResource].weight": {"3", file + ":13"},
		profile + "pluginConfig[Greeter].args":                          {notShown, file + ":21"},
		fit + "scoringStrategy.type":                                    {"LeastAllocated", "default"},
		"--ranking-memory-mb":                                           {"5", "--ranking-memory-mb"},
		"--config":                                                      {file, "--config"},
		"--kube-api-qps":                                                {}, // beside a file
	})
	if strings.Contains(out, "hush") || strings.Contains(out, "aHVzaDM") {
		t.Errorf("a secret is in %s", out)
	}
}

func TestFlagsAreTheOriginWithoutAFile(t *testing.T) {
	s := newSchedulerWith(t, nil, "--kubeconfig="+writeKubeconfig(t), "--leader-elect=false", "--kube-api-qps=7",
		"--serve-scheduler-names=x,y")
	got, _ := settingsOf(t, s)
	checkSettings(t, got, map[string][2]string{
		"clientConnection.qps":       {"7", "--kube-api-qps"},
		"clientConnection.burst":     {"2000", "default"},
		"leaderElection.leaderElect": {"false", "--leader-elect"},
		"profiles[1].schedulerName":  {"y", "--serve-scheduler-names"},
		// A default of Tenon's plugins is there though nothing names it.
		"profiles[1].pluginConfig[ElasticQuota].args.monitorAllQuotas": {"true", "default"},
	})
}

func TestGatesThatDifferHaveTheirOrigin(t *testing.T) {
	s := newScheduler(t)
	c, err := s.configuration()
	testkit.Check(t, err)
	if !slices.ContainsFunc(c.Gates, func(g view.Gate) bool {
		return g.Name == "OpportunisticBatching" || g.Name == "NominatedNodeNameForExpectation"
	}) {
		t.Errorf("got %v", c.Gates)
	}
	for _, g := range c.Gates {
		if g.Enabled == g.Default || g.Origin != "Tenon" {
			t.Errorf("got %v", g)
		}
	}
}
