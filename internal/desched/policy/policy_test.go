package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAConfigurationMayNameTheGatesThatExist, and no other.
func TestAConfigurationMayNameTheGatesThatExist(t *testing.T) {
	t.Parallel()
	_, err := descheduler.Read("f", []byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n"+
		"- pluginConfig: [{name: MigrationController, args: {skipEvictionGates: [x]}}]\n"))
	if err == nil {
		t.Fatal("the gate x is allowed")
	}
	_, allowed, _ := strings.Cut(err.Error(), "use ")
	gates := strings.Split(allowed, ", ")
	slices.Sort(gates)
	if diff := cmp.Diff(evict.Gates(), gates); diff != "" {
		t.Errorf("gates (-those that exist +those that are allowed):\n%s", diff)
	}
}

// TestTheLimitsOfAConfiguration: numbers, percentages, rates and windows, with the defaults of the file.
func TestTheLimitsOfAConfiguration(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]func(p *evict.Policy) (got, want any){
		"{}": func(p *evict.Policy) (got, want any) {
			got = []any{
				p.EvictInterval.String(), p.EvictBurst, p.MaxMigratingPerNode, p.MaxMigratingGlobally,
				p.MinPodAge.String(), p.ReturnWindow.String(), p.WorkloadWindow.Duration.String(), p.Exclude,
				p.OwnerBackoff.String(),
			}
			return got, []any{
				"100ms", 1, 2, 0, "5m0s", "30m0s", "5m0s", []string{"kube-system", "tenon-system"}, "5m0s",
			}
		},
		"{ownerBackoff: 0s}": func(p *evict.Policy) (got, want any) { return p.OwnerBackoff.String(), "0s" },
		"{evictQPS: 30/m}":   func(p *evict.Policy) (got, want any) { return p.EvictInterval.String(), "2s" },
		"{evictQPS: 0.5}":    func(p *evict.Policy) (got, want any) { return p.EvictInterval.String(), "2s" },
		"{maxMigratingPerWorkload: 7}": func(p *evict.Policy) (got, want any) {
			return p.MaxMigratingPerWorkload, evict.IntOrPercent{Number: 7}
		},
		"{maxMigratingPerWorkload: 7%}": func(p *evict.Policy) (got, want any) {
			return p.MaxMigratingPerWorkload, evict.IntOrPercent{Number: 7, Percent: true}
		},
		"{namespaces: {exclude: []}}": func(p *evict.Policy) (got, want any) { return p.Exclude, []string{} },
		"{objectLimiters: {workload: {duration: 0s}}}": func(p *evict.Policy) (got, want any) {
			return p.WorkloadWindow, (*evict.Window)(nil)
		},
		"{maxMigratingPerNamespace: 3, objectLimiters: {namespace: {duration: 1h, burst: 2}}}": func(p *evict.Policy) (
			got, want any,
		) {
			return []any{
				p.NamespaceWindow.Duration.String(), p.NamespaceWindow.MaxMigrating.Number,
				p.NamespaceWindow.Burst,
			}, []any{"1h0m0s", 3, 2}
		},
	} {
		s, err := descheduler.Read("f", []byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n"+
			"- pluginConfig: [{name: MigrationController, args: "+args+"}]\n"))
		testkit.Check(t, err)
		p, err := NewPolicy(s, "tenon-system", nil)
		testkit.Check(t, err)
		got, want := want(p)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}
