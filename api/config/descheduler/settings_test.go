package descheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/config/strict"
)

const (
	configuration = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
	policy        = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
	loads         = "lowThresholds: {cpu: 45}, highThresholds: {cpu: 75}"
)

// balance is a configuration with one plugin and its arguments.
func balance(plugin, args string) string {
	return configuration + "profiles:\n- name: a\n  plugins: {balance: {enabled: [{name: " + plugin + "}]}}\n" +
		"  pluginConfig:\n  - name: " + plugin + "\n    args: " + args + "\n"
}

func deschedule(plugin, args string) string {
	return strings.Replace(balance(plugin, args), "balance", "deschedule", 1)
}

// limits is a policy with arguments of MigrationController.
func limits(args string) string {
	return policy + "profiles:\n- name: a\n  pluginConfig:\n  - name: MigrationController\n    args: " + args + "\n"
}

func TestWhatAFileMayNotSayIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"another kind": {
			"apiVersion: descheduler/v1alpha2\nkind: Policy\n",
			`f.yaml:2:1: kind: "Policy" is not allowed: use DeschedulerConfiguration or DeschedulerPolicy`,
		},
		"another version": {
			"apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n",
			`f.yaml:1:1: apiVersion: "descheduler/v1alpha1" is not allowed: use descheduler/v1alpha2`,
		},
		"a misspelt field": {
			policy + "nodeSelektor: a=b\n", `f.yaml:3:1: nodeSelektor: unknown field, did you mean "nodeSelector"?`,
		},
		"a misspelt plugin": {
			policy + "profiles:\n- name: a\n  plugins:\n    balance:\n      enabled: [RemoveDuplicate]\n",
			`f.yaml:7:17: profiles[0].plugins.balance.enabled[0]: "RemoveDuplicate" is not a known plugin, ` +
				`did you mean RemoveDuplicates? (known: CustomPriority, DefaultEvictor, `,
		},
		"an unknown plugin among the disabled ones": {
			policy + "profiles:\n- name: a\n  plugins: {balance: {disabled: [Nothing]}}\n",
			`plugins.balance.disabled[0]: "Nothing" is not a known plugin (known: `,
		},
		"a plugin at another point of extension": {
			policy + "profiles:\n- name: a\n  plugins: {deschedule: {enabled: [RemoveDuplicates]}}\n",
			"deschedule.enabled[0]: RemoveDuplicates is not allowed here: use plugins.balance",
		},
		"two profiles of one name": {
			policy + "profiles:\n- name: a\n- name: a\n", `profiles[1].name: "a" is the name of an earlier profile`,
		},
		"limits in two profiles": {
			limits("{}") + "- name: b\n  pluginConfig: [{name: MigrationController, args: {}}]\n",
			"MigrationController has arguments in another profile already",
		},
		"a misspelt argument": {
			limits("{evictBurts: 1}"), `f.yaml:7:12: profiles[0].pluginConfig[0].args.evictBurts: unknown field, ` +
				`did you mean "evictBurst"?`,
		},
		"arguments of another kind": {
			limits("{kind: PodLifeTimeArgs}"),
			`args.kind: "PodLifeTimeArgs" is not allowed: use MigrationControllerArgs`,
		},
		"a negative limit": {
			limits("{maxMigratingPerNode: -1}"),
			"-1 is not allowed: use a number from 0 on",
		},
		"a negative round": {
			policy + "maxNoOfPodsToEvictTotal: -1\n",
			"-1 is not allowed: use a number from 0 on",
		},
		"no interval at all": {
			configuration + "deschedulingInterval: 0s\n",
			"0s is not allowed: use a number from 1s on",
		},
		"more than all replicas": {
			limits("{maxMigratingPerWorkload: 101%}"),
			`"101%" is not allowed: use a number from 1 on, or from 1% to 100%`,
		},
		"no replicas": {
			limits("{maxUnavailablePerWorkload: 0}"),
			`"0" is not allowed: use a number from 1 on`,
		},
		"a share of namespaces above 100": {
			limits("{namespaces: {percent: 101}}"), "101 is not allowed: use a number from 0 to 100",
		},
		"an unknown gate": {
			limits("{skipEvictionGates: [PDB]}"),
			`"PDB" is not allowed: use MaxUnavailablePerWorkload,`,
		},
		"the eviction policy that only newer clusters have": {
			limits("{evictionPolicy: Ask}"), `"Ask" is not allowed: use Eviction, Delete, SoftEviction, Request`,
		},
		"a rate of nothing": {
			limits("{evictQPS: 0}"),
			`"0" is not allowed: use a number per second from 0.0001`,
		},
		"a rate that is not a number": {
			limits("{evictQPS: NaN}"), `"NaN" is not allowed: use a number per second from 0.0001`,
		},
		"a rate per day": {limits("{evictQPS: 30/d}"), `"30/d" is not allowed: use a number per second`},
		"no burst":       {limits("{evictBurst: 0}"), "evictBurst: 0 is not allowed: use a number from 1 on"},
		"a domain without a key": {
			limits("{domainLimits: [{maxMigrating: 1}]}"), "domainLimits[0].topologyKey: must be there",
		},
		"half of a workload in words": {
			limits("{maxUnavailablePerWorkload: half}"), `"half" is not allowed: use a number from 1 on`,
		},
		"a share of a namespace": {
			limits("{objectLimiters: {namespace: {duration: 1m, maxMigrating: 9%}}}"),
			`objectLimiters.namespace.maxMigrating: "9%" is not allowed: use a number, because`,
		},
		"a window of a namespace without a number": {
			limits("{objectLimiters: {namespace: {duration: 1m}}}"),
			"objectLimiters.namespace.maxMigrating: must be there without maxMigratingPerNamespace",
		},
		"a window of a negative length": {
			limits("{objectLimiters: {workload: {duration: -1m}}}"), "-60s is not allowed: use a number from 0s on",
		},
		"an object without a limiter": {
			limits("{objectLimiters: {node: {duration: 1m}}}"), "objectLimiters.node: unknown field",
		},
		"a negative age": {limits("{minPodAge: -1s}"), "minPodAge: -1s is not allowed: use a number from 0s on"},
		"a domain without a limit": {
			limits("{domainLimits: [{topologyKey: zone}]}"), "domainLimits[0].maxMigrating: 0 is not allowed",
		},
		"a label selector that is not one": {
			policy + "nodeSelector: \"a=(\"\n", "nodeSelector: is not a label selector: ",
		},
		"a priority by value and name": {
			limits("{priorityThreshold: {value: 1, name: a}}"), "needs a value or a name, and not both",
		},
		"a low threshold above the high one": {
			balance("LowNodeUtilization", "{thresholds: {cpu: 60}, targetThresholds: {cpu: 50}}"),
			"args.thresholds.cpu: 60 is not allowed: use at most the 50 of targetThresholds",
		},
		"a resource in one of both thresholds": {
			balance("LowNodeUtilization", "{thresholds: {cpu: 20, memory: 20}, targetThresholds: {cpu: 50}}"),
			"args.targetThresholds: has no memory, which thresholds has",
		},
		"thresholds that are not there": {
			balance("LowNodeUtilization", "{thresholds: {cpu: 20}}"),
			"targetThresholds: must be there: use percentages of resources",
		},
		"a plugin that needs arguments without any": {
			policy + "profiles:\n- name: a\n  plugins: {balance: {enabled: [HighNodeUtilization]}}\n",
			"enabled[0]: HighNodeUtilization thresholds: must be there",
		},
		"a threshold above 100": {
			balance("HighNodeUtilization", "{thresholds: {cpu: 101}}"),
			"101 is not allowed: use a number from 0 to 100",
		},
		"no load thresholds": {
			balance("LowNodeLoad", "{}"), "args.lowThresholds: must be there: use percentages of resources",
		},
		"no load thresholds without arguments": {
			policy + "profiles:\n- name: a\n  plugins: {balance: {enabled: [LowNodeLoad]}}\n",
			"enabled[0]: LowNodeLoad highThresholds: must be there",
		},
		"a low load above the high one": {
			balance("LowNodeLoad", "{lowThresholds: {cpu: 60}, highThresholds: {cpu: 50}}"),
			"args.lowThresholds.cpu: 60 is not allowed: use at most the 50 of highThresholds",
		},
		"a low load of production above the high one": {
			balance("LowNodeLoad", "{"+loads+", prodLowThresholds: {cpu: 60}, prodHighThresholds: {cpu: 50}}"),
			"args.prodLowThresholds.cpu: 60 is not allowed: use at most the 50 of prodHighThresholds",
		},
		"a load in one of both thresholds": {
			balance("LowNodeLoad", "{lowThresholds: {cpu: 45}, highThresholds: {cpu: 75, memory: 80}}"),
			"args.lowThresholds: has no memory, which highThresholds has",
		},
		"a load of production in one of both thresholds": {
			balance("LowNodeLoad", "{"+loads+", prodHighThresholds: {cpu: 50}}"),
			"args.prodLowThresholds: must be there",
		},
		"a load of 0 %": {
			balance("LowNodeLoad", "{lowThresholds: {cpu: 0}, highThresholds: {cpu: 75}}"),
			"args.lowThresholds.cpu: 0 is not allowed: use a number from 1 to 100",
		},
		"a load of 101 %": {
			balance("LowNodeLoad", "{lowThresholds: {cpu: 45}, highThresholds: {cpu: 101}}"),
			"args.highThresholds.cpu: 101 is not allowed: use a number from 1 to 100",
		},
		"a negative load of production": {
			balance("LowNodeLoad", "{"+loads+", prodLowThresholds: {cpu: -1}, prodHighThresholds: {cpu: 50}}"),
			"args.prodLowThresholds.cpu: -1 is not allowed",
		},
		"a load that is not a number": {
			balance("LowNodeLoad", "{lowThresholds: {cpu: NaN}, highThresholds: {cpu: 75}}"),
			"args.lowThresholds.cpu: ",
		},
		"a load that is not measured": {
			balance("LowNodeLoad", "{lowThresholds: {pods: 45}, highThresholds: {pods: 75}}"),
			`args.lowThresholds.pods: "pods" is not measured: use cpu, memory`,
		},
		"a weight of what is not measured": {
			balance("LowNodeLoad", "{"+loads+", resourceWeights: {nvidia.com/gpu: 1}}"),
			`"nvidia.com/gpu" is not measured: use cpu, memory`,
		},
		"a weight of 0": {
			balance("LowNodeLoad", "{"+loads+", resourceWeights: {cpu: 0}}"),
			"args.resourceWeights.cpu: 0 is not allowed: use a number from 1 to 100",
		},
		"an anomaly of no round": {
			balance("LowNodeLoad", "{"+loads+", anomalyCondition: {consecutiveAbnormalities: 0}}"),
			"consecutiveAbnormalities: 0 is not allowed: use a number from 1 on",
		},
		"a NodeMetric that expires at once": {
			balance("LowNodeLoad", "{"+loads+", nodeMetricExpirationSeconds: 0}"),
			"nodeMetricExpirationSeconds: 0 is not allowed: use a number from 1 on",
		},
		"a pool without thresholds": {
			balance("LowNodeLoad", "{nodePools: [{name: a, nodeSelector: {}}]}"),
			"args.nodePools[0].highThresholds: must be there",
		},
		"a pool without nodes": {
			balance("LowNodeLoad", "{nodePools: [{name: a, "+loads+"}]}"),
			"args.nodePools[0].nodeSelector: must be there",
		},
		"a pool without a name": {
			balance("LowNodeLoad", "{nodePools: [{nodeSelector: {}, "+loads+"}]}"),
			"args.nodePools[0].name: must be there",
		},
		"two pools of one name": {
			balance("LowNodeLoad", "{nodePools: [{name: a, nodeSelector: {}, "+loads+"}, {name: a, nodeSelector: {}, "+
				loads+"}]}"), `args.nodePools[1].name: "a" is the name of an earlier pool`,
		},
		"a misspelt resource": {
			balance("HighNodeUtilization", "{thresholds: {memroy: 20}}"),
			`"memroy" is not a resource: use cpu, memory,`,
		},
		"use from metrics": {
			balance("LowNodeUtilization", "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, "+
				"metricsUtilization: {source: KubernetesMetrics}}"),
			"metricsUtilization: is not allowed: utilisation is computed from requests",
		},
		"Prometheus": {
			policy + "metricsProviders: [{source: Prometheus, prometheus: {url: x}}]\n",
			`"Prometheus" is not allowed: use KubernetesMetrics`,
		},
		"one resource to compare": {
			balance("FragmentationAware", "{resources: [cpu]}"), "has 1 resources: use two or more",
		},
		"one group of nodes": {
			balance("CustomPriority", "{evictionOrder: [{name: a}]}"),
			"has 1 groups: use two or more",
		},
		"taints that count and taints that do not": {
			deschedule("RemovePodsViolatingNodeTaints", "{includedTaints: [a], excludedTaints: [b]}"),
			"excludedTaints: is not allowed beside includedTaints",
		},
		"no number of restarts": {
			deschedule("RemovePodsHavingTooManyRestarts", "{}"), "podRestartThreshold: 0 is not allowed",
		},
		"no lifetime":   {deschedule("PodLifeTime", "{}"), "maxPodLifeTimeSeconds: 0 is not allowed"},
		"two documents": {policy + "---\n" + policy, "f.yaml: has 2 documents, want one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Read("f.yaml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s\nof:\n%s", err, c.want, c.text)
			}
		})
	}
}

func TestAProblemIsReportedAlone(t *testing.T) {
	t.Parallel()
	_, err := Read("f.yaml", []byte(policy+"gracePeriod: 3\n"))
	const want = "f.yaml:3:1: gracePeriod: unknown"
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want the unknown field alone", err)
	}
}

func TestWhatHasNoEffectIsWarnedOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"leader election": {
			configuration + "leaderElection: {leaderElect: true}\n",
			"f.yaml:3:1: leaderElection: has no effect: flags set the leader election",
		},
		"a metrics collector": {
			policy + "metricsCollector: {enabled: true}\n",
			"f.yaml:3:1: metricsCollector: has no effect: it is deprecated",
		},
		"a limit of 0": {
			limits("{maxMigratingGlobally: 0}"),
			"maxMigratingGlobally: 0 removes the bound: use paused to stop every move",
		},
		"arguments of a plugin that does not run": {
			policy + "profiles:\n- name: a\n  pluginConfig: [{name: RemoveDuplicates, args: {}}]\n",
			"f.yaml:5:18: profiles[0].pluginConfig[0]: has no effect: the profile does not enable RemoveDuplicates",
		},
		"an arbiter that is switched off": {
			limits("{arbitrationArgs: {enabled: false}}"),
			"has no effect: waiting moves are always chosen from in order",
		},
		"a number of workers": {
			limits("{maxConcurrentReconciles: 4}"), "has no effect: one worker lets each job take its steps",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read("f.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(got.Written.Warnings, func(w string) bool { return strings.Contains(w, c.want) }) {
				t.Errorf("warnings of\n%s\nare %q, want %s", c.text, got.Written.Warnings, c.want)
			}
		})
	}
}

func TestBothKindsSayTheSame(t *testing.T) {
	t.Parallel()
	koordinator, err := Read("a", []byte(balance("RemoveDuplicates", "{excludeOwnerKinds: [Job]}")))
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, err := Read("b", []byte(policy+"profiles:\n- name: a\n"+
		"  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"+
		"  pluginConfig: [{name: RemoveDuplicates, args: {excludeOwnerKinds: [Job]}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	koordinator.Nodes = kubernetes.Nodes // both select all
	koordinator.Written, kubernetes.Written = strict.Settings{}, strict.Settings{}
	a, _ := json.Marshal(koordinator)
	b, _ := json.Marshal(kubernetes)
	if diff := cmp.Diff(string(a), string(b)); diff != "" {
		t.Errorf("the kinds differ (-DeschedulerConfiguration +DeschedulerPolicy):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := Read("f.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Migration
	if got.Interval != 2*time.Minute || m.EvictQPS != "10" || m.EvictBurst != 1 || *m.MaxMigratingPerNode != 2 ||
		m.MaxMigratingGlobally != nil || m.ObjectLimiters.Workload.Duration.Duration != 5*time.Minute ||
		m.DefaultJobTTL.Duration != 5*time.Minute || m.DefaultJobMode != "ReservationFirst" ||
		m.EvictionPolicy != "Eviction" ||
		m.MinPodAge.Duration != 5*time.Minute || m.Namespaces.Percent != 100 ||
		m.ReturnWindow.Duration != 30*time.Minute || m.ArbitrationArgs.Interval.Duration != 500*time.Millisecond {
		t.Errorf("got the defaults %+v", m)
	}
	if null, err := Read("f.yaml", []byte(limits("{maxMigratingPerNode: null}"))); err != nil ||
		*null.Migration.MaxMigratingPerNode != 2 {
		t.Errorf("null is not the default: %v, %v", null.Migration.MaxMigratingPerNode, err)
	}
}

func TestAProtectionThatAProfileLiftsIsLiftedForAll(t *testing.T) {
	t.Parallel()
	const lifts = policy + "profiles:\n- name: a\n  pluginConfig:\n" +
		"  - name: DefaultEvictor\n    args: {podProtections: {defaultDisabled: [PodsWithLocalStorage]}}\n"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"unless the limits have the field": {
			lifts + "  - {name: MigrationController, args: {evictLocalStoragePods: false}}\n", false,
		},
		"with other limits": {lifts + "  - {name: MigrationController, args: {evictBurst: 2}}\n", true},
		"without limits":    {lifts, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := Read("f", []byte(c.text)); err != nil || got.Migration.EvictLocalStoragePods != c.want {
				t.Errorf("got %v, %v; want %v", got.Migration.EvictLocalStoragePods, err, c.want)
			}
		})
	}
}

// The samples in the reference are read without a warning, and name every field that has an effect.
func TestTheSamplesNameEveryField(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		top     any
		profile string
	}{
		"descheduler-config.yaml": {&Configuration{}, "plugins.deschedule.enabled"},
		"descheduler-policy.yaml": {&Policy{}, "plugins.preevictionfilter.enabled"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../../docs/reference/" + file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(file, text)
			if err != nil || len(got.Written.Warnings) > 0 {
				t.Fatalf("got %v, warnings %q", err, got.Written.Warnings)
			}
			documents, _ := strict.Parse(file, text)
			documents[0].Decode("", c.top)
			names(t, documents[0], "", reflect.TypeOf(c.top).Elem())
			if file == "descheduler-policy.yaml" {
				return
			}
			known, seen := kinds(), 0
			for n := 0; documents[0].Has(path("profiles[0].pluginConfig", n)); n++ {
				var config PluginConfig
				documents[0].Decode(path("profiles[0].pluginConfig", n), &config)
				args := known[config.Name].args()
				documents[0].Decode(path("profiles[0].pluginConfig", n)+".args", args)
				names(t, documents[0], path("profiles[0].pluginConfig", n)+".args", reflect.TypeOf(args).Elem())
				seen++
			}
			if seen != len(known) {
				t.Errorf("the sample has the arguments of %d plugins, want %d", seen, len(known))
			}
		})
	}
}

func path(list string, n int) string { return fmt.Sprintf("%s[%d]", list, n) }

// names checks that the document has all fields of a struct which have an effect.
func names(t *testing.T, d *strict.Document, at string, s reflect.Type) {
	t.Helper()
	for f := range s.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		below := strings.TrimPrefix(at+"."+name, ".")
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				below += "[0]"
			}
			inner = inner.Elem()
		}
		switch {
		case options == "inline":
			names(t, d, at, f.Type)
		case f.Tag.Get("unused")+f.Tag.Get("refused") != "":
		case d.Line(strings.TrimSuffix(below, "[0]")) == 0 && !(name == "value" || name == "name"):
			t.Errorf("the sample does not name %s", below)
		case inner.Kind() == reflect.Struct && inner.PkgPath() == s.PkgPath() && d.Has(below):
			names(t, d, below, inner)
		}
	}
}

// TestArgumentsWithADryRunSaySo: a plugin whose arguments have dryRun must not move pods because no other program
// knows of it.
func TestArgumentsWithADryRunSaySo(t *testing.T) {
	t.Parallel()
	found := 0
	for name, kind := range kinds() {
		args := reflect.ValueOf(kind.args())
		field := args.Elem().FieldByName("DryRun")
		if _, plans := args.Interface().(DryRunner); !field.IsValid() || name == MigrationController {
			if plans {
				t.Errorf("%s says whether it is a dry run, and has no dryRun", name)
			}
			continue
		} else if !plans {
			t.Errorf("%s has dryRun, and is not a DryRunner", name)
			continue
		}
		found++
		for _, want := range []bool{false, true} {
			if field.SetBool(want); args.Interface().(DryRunner).IsDryRun() != want {
				t.Errorf("%s with dryRun %t says otherwise", name, want)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d plugins have dryRun, want at least 4", found)
	}
}
