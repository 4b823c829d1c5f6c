package sloconfig_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestWhatTheConfigMapMayNotSayIsRefusedByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ key, value, want string }{
		"201 percent": {
			sloconfig.ColocationKey, `{"cpuReclaimThresholdPercent":201}`,
			`slo-controller-config: colocation-config:1:2: cpuReclaimThresholdPercent: Invalid value: 201: ` +
				`must be 0 to 200`,
		},
		"201 percent of memory": {
			sloconfig.ColocationKey, `{"memoryReclaimThresholdPercent":201}`,
			`memoryReclaimThresholdPercent: Invalid value: 201: must be 0 to 200`,
		},
		"101 percent for batch pods": {
			sloconfig.ColocationKey, `{"batchCPUThresholdPercent":101}`,
			`batchCPUThresholdPercent: Invalid value: 101: must be 0 to 100`,
		},
		"a negative percentage": {
			sloconfig.ColocationKey, `{"memoryReclaimThresholdPercent":-1}`,
			`memoryReclaimThresholdPercent: Invalid value: -1: must be 0 to 200`,
		},
		"a fraction of a percent": {
			sloconfig.ColocationKey, `{"midUnallocatedPercent":0.5}`,
			`midUnallocatedPercent: "0.5" is not allowed: use a number`,
		},
		"not a number": {
			sloconfig.ColocationKey, `{"resourceDiffThreshold":"NaN"}`,
			`resourceDiffThreshold: "NaN" is not allowed: use `,
		},
		"NaN of YAML": {
			sloconfig.ColocationKey, `{"resourceDiffThreshold":.nan}`, `colocation-config:1:2: resourceDiffThreshold: `,
		},
		"no difference at all": {
			sloconfig.ColocationKey, `{"resourceDiffThreshold":0}`,
			`resourceDiffThreshold: Invalid value: 0: must be above 0 and at most 1`,
		},
		"a report that never grows old": {
			sloconfig.ColocationKey, `{"degradeTimeMinutes":0}`,
			`degradeTimeMinutes: Invalid value: 0: must be 1 to 1440`,
		},
		"an interval of years": {
			sloconfig.ColocationKey, `{"updateTimeThresholdSeconds":9223372036854775807}`,
			`updateTimeThresholdSeconds: Invalid value: 9223372036854775807: must be 1 to 86400`,
		},
		"CPU by request": {
			sloconfig.ColocationKey, `{"cpuCalculatePolicy":"request"}`,
			`cpuCalculatePolicy: Unsupported value: "request": supported values: "usage", "maxUsageRequest"`,
		},
		"an unknown policy of memory": {
			sloconfig.ColocationKey, `{"memoryCalculatePolicy":"Usage"}`,
			`memoryCalculatePolicy: Unsupported value: "Usage": supported values: "usage", "request", ` +
				`"maxUsageRequest"`,
		},
		"a window of no time": {
			sloconfig.ColocationKey, `{"metricAggregatePolicy":{"durations":["5m","0s"]}}`,
			`metricAggregatePolicy.durations[1]: Invalid value: "0s": must be above 0 and at most 24h`,
		},
		"a misspelt field": {
			sloconfig.ColocationKey, `{"cpuReclaimThresholdPercents":60}`,
			`cpuReclaimThresholdPercents: unknown field, did you mean "cpuReclaimThresholdPercent"?`,
		},
		"the shape of another key": {
			sloconfig.ColocationKey, `{"clusterStrategy":{"enable":true}}`, `clusterStrategy: unknown field`,
		},
		"a field twice": {sloconfig.ColocationKey, `{"enable":true,"enable":false}`, `enable: is there twice`},
		"no JSON":       {sloconfig.ColocationKey, `{"enable":`, `slo-controller-config: colocation-config:1:1: `},
		"two documents": {sloconfig.ColocationKey, "enable: true\n---\nenable: false\n", `has 2 documents, want one`},
		"a bad value for some nodes": {
			sloconfig.ColocationKey, `{"nodeConfigs":[{"name":"a","nodeSelector":{},"midCPUThresholdPercent":200}]}`,
			`nodeConfigs[0].midCPUThresholdPercent: Invalid value: 200: must be 0 to 100`,
		},
		"a selector that cannot be read": {
			sloconfig.ColocationKey,
			`{"nodeConfigs":[{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}]}`,
			`nodeConfigs[0].nodeSelector: Invalid value: `,
		},
		"a name twice": {
			sloconfig.ThresholdKey, `{"nodeStrategies":[{"name":"a"},{"name":"a"}]}`,
			`nodeStrategies[1].name: Duplicate value: "a"`,
		},
		"a suppression above the whole node": {
			sloconfig.ThresholdKey, `{"clusterStrategy":{"cpuSuppressThresholdPercent":120}}`,
			`clusterStrategy.cpuSuppressThresholdPercent: Invalid value: 120: must be 0 to 100`,
		},
		"a lower bound above the upper one": {
			sloconfig.ThresholdKey,
			`{"clusterStrategy":{"memoryEvictThresholdPercent":70,"memoryEvictLowerPercent":80}}`,
			`clusterStrategy.memoryEvictLowerPercent: Invalid value: 80: must be less than memoryEvictThresholdPercent`,
		},
		"an unknown way to suppress": {
			sloconfig.ThresholdKey, `{"nodeStrategies":[{"nodeSelector":{},"cpuSuppressPolicy":"quota"}]}`,
			`nodeStrategies[0].cpuSuppressPolicy: Unsupported value: "quota": supported values: "cpuset", "cfsQuota"`,
		},
		"evictions of prod pods": {
			sloconfig.ThresholdKey, `{"clusterStrategy":{"evictEnabledPriorityThreshold":9000}}`,
			`clusterStrategy.evictEnabledPriorityThreshold: Invalid value: 9000: must be at most 7999`,
		},
		"a negative burst": {
			sloconfig.BurstKey, `{"clusterStrategy":{"cpuBurstPercent":-1}}`,
			`clusterStrategy.cpuBurstPercent: Invalid value: -1: must be 1 to 10000`,
		},
		"a burst of more than 100 times the limit": {
			sloconfig.BurstKey, `{"nodeStrategies":[{"nodeSelector":{},"cpuBurstPercent":10001}]}`,
			`nodeStrategies[0].cpuBurstPercent: Invalid value: 10001: must be 1 to 10000`,
		},
		"an unknown policy of bursts": {
			sloconfig.BurstKey, `{"clusterStrategy":{"policy":"static"}}`,
			`clusterStrategy.policy: Unsupported value: "static": supported values: "none", "auto", "cpuBurstOnly", ` +
				`"cfsQuotaBurstOnly"`,
		},
		"a quota that is scaled down": {
			sloconfig.BurstKey, `{"clusterStrategy":{"cfsQuotaBurstPercent":99}}`,
			`clusterStrategy.cfsQuotaBurstPercent: Invalid value: 99: must be at least 100`,
		},
		"a period of bursts below none": {
			sloconfig.BurstKey, `{"clusterStrategy":{"cfsQuotaBurstPeriodSeconds":-2}}`,
			`clusterStrategy.cfsQuotaBurstPeriodSeconds: Invalid value: -2: must be at least -1`,
		},
		"a share pool of more than all": {
			sloconfig.BurstKey, `{"clusterStrategy":{"sharePoolThresholdPercent":101}}`,
			`clusterStrategy.sharePoolThresholdPercent: Invalid value: 101: must be 0 to 100`,
		},
		"a misspelt field of bursts": {
			sloconfig.BurstKey, `{"clusterStrategy":{"cpuBurstPercents":1}}`,
			`clusterStrategy.cpuBurstPercents: unknown field, did you mean "cpuBurstPercent"?`,
		},
		"a class that there is not": {
			sloconfig.QoSKey, `{"clusterStrategy":{"lseClass":{}}}`, `clusterStrategy.lseClass: unknown field`,
		},
		"an application without a list": {
			sloconfig.ApplicationsKey, `{"applications":{"name":"a"}}`, `applications: an object is not allowed`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sloconfig.Parse(map[string]string{c.key: c.value})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse(%s) = %v, want %q", c.value, err, c.want)
			}
		})
	}
}

func parse(t *testing.T, data map[string]string) *sloconfig.Config {
	t.Helper()
	c, err := sloconfig.Parse(data)
	testkit.Check(t, err)
	return c
}

func node(pairs ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

func TestTheFirstConfigThatMatchesCounts(t *testing.T) {
	t.Parallel()
	c := parse(t, map[string]string{sloconfig.ColocationKey: `{"enable":true,"cpuReclaimThresholdPercent":50,
		"nodeConfigs":[
		{"name":"without a selector","cpuReclaimThresholdPercent":1},
		{"name":"a","nodeSelector":{"matchLabels":{"pool":"a"}},"cpuReclaimThresholdPercent":70},
		{"name":"c","nodeSelector":{"matchLabels":{"pool":"a"}},"memoryReclaimThresholdPercent":10},
		{"name":"d","nodeSelector":{"matchExpressions":[{"key":"pool","operator":"Exists"}]},"enable":false}]}`})
	for name, want := range map[string]struct {
		node    *corev1.Node
		cpu     int64
		enabled bool
	}{
		"no label":                     {node(), 50, true},
		"pool a":                       {node("pool", "a"), 70, true},
		"pool b":                       {node("pool", "b"), 50, false},
		"pool a with a ratio":          {node("pool", "a", annotation.NodeCPUReclaimRatio, "0.58"), 58, true},
		"a ratio of all":               {node(annotation.NodeCPUReclaimRatio, "1"), 100, true},
		"a ratio above all":            {node(annotation.NodeCPUReclaimRatio, "1.5"), 150, true},
		"a ratio that is rounded down": {node(annotation.NodeCPUReclaimRatio, "0.299"), 29, true},
		"a ratio that floating point has smaller": {node(annotation.NodeCPUReclaimRatio, "0.29"), 29, true},
	} {
		s, err := c.Strategy(want.node)
		if err != nil || *s.CPUReclaimThresholdPercent != want.cpu || *s.Enable != want.enabled ||
			*s.MemoryReclaimThresholdPercent != 65 || *s.DegradeTimeMinutes != 15 {
			t.Errorf("%s: %d %%, enabled %v, %v", name, *s.CPUReclaimThresholdPercent, *s.Enable, err)
		}
	}
	n := node(annotation.NodeCPUReclaimRatio, "0.9")
	n.Annotations[annotation.NodeColocationStrategy] = `{"cpuReclaimThresholdPercent":20,"enable":false}`
	if s, err := c.Strategy(n); err != nil || *s.CPUReclaimThresholdPercent != 90 || *s.Enable {
		t.Errorf("with an annotation and a label: %d %%, enabled %v, %v", *s.CPUReclaimThresholdPercent, *s.Enable, err)
	}
	var none *sloconfig.Config
	if s, err := none.Strategy(node()); err != nil || *s.Enable {
		t.Errorf("without a ConfigMap: enabled %v, %v", *s.Enable, err)
	}
}

func TestWhatANodeMayNotSayIsRefused(t *testing.T) {
	t.Parallel()
	c := parse(t, map[string]string{sloconfig.ColocationKey: `{"enable":true}`})
	for _, text := range []string{"", "x", "-0.1", "2.01", "NaN", "Inf", "60%"} {
		if s, err := c.Strategy(node(annotation.NodeMemoryReclaimRatio, text)); err == nil ||
			*s.MemoryReclaimThresholdPercent != 65 {
			t.Errorf("ratio %q: %v, %v", text, *s.MemoryReclaimThresholdPercent, err)
		}
	}
	for _, text := range []string{
		"", "[]", `{"enable":"yes"}`, `{"nodeConfigs":[]}`, `{"midCPUThresholdPercent":101}`,
	} {
		n := node()
		n.Annotations[annotation.NodeColocationStrategy] = text
		if _, err := c.Strategy(n); err == nil {
			t.Errorf("strategy %q is read", text)
		}
	}
}

func TestAReclaimThresholdMayBeAboveTheWholeNode(t *testing.T) {
	t.Parallel()
	c := parse(t, map[string]string{
		sloconfig.ColocationKey: `{"cpuReclaimThresholdPercent":150,"memoryReclaimThresholdPercent":200}`,
	})
	if s, err := c.Strategy(node()); err != nil || *s.CPUReclaimThresholdPercent != 150 ||
		*s.MemoryReclaimThresholdPercent != 200 {
		t.Errorf("%d %%, %d %%, %v", *s.CPUReclaimThresholdPercent, *s.MemoryReclaimThresholdPercent, err)
	}
	if _, err := c.Strategy(node(annotation.NodeMidStaticCPURatio, "1.01")); err == nil {
		t.Error("mid pods get more than the whole node")
	}
}

// TestTheLastValidDataCounts while the data has an error, and not before the manager has noted any.
func TestTheLastValidDataCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		noted   string
		enabled bool
	}{
		"none is noted": {"", false}, "an earlier version": {`{"colocation-config":"{\"enable\":true}"}`, true},
		"a note that is not valid either": {`{"colocation-config":"{"}`, false}, "not JSON": {"x", false},
	} {
		m := &corev1.ConfigMap{Data: map[string]string{sloconfig.ColocationKey: "{"}}
		m.Annotations = map[string]string{annotation.LastValidStrategy: c.noted}
		config, problem := sloconfig.Read(m)
		if s, _ := config.Strategy(node()); problem == nil || *s.Enable != c.enabled || (config != nil) != c.enabled {
			t.Errorf("%s: enabled %v, %v", name, *s.Enable, problem)
		}
	}
}

func TestNodeSLOSaysWhatTheKeysSay(t *testing.T) {
	t.Parallel()
	c := parse(t, map[string]string{
		sloconfig.ThresholdKey: `{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":65},"nodeStrategies":[
			{"name":"a","nodeSelector":{"matchLabels":{"pool":"a"}},"cpuSuppressThresholdPercent":40}]}`,
		sloconfig.QoSKey: `{"clusterStrategy":{"beClass":{"cpuQOS":{"enable":true,"groupIdentity":-1}}},
			"nodeStrategies":[
			{"nodeSelector":{"matchLabels":{"pool":"a"}},"beClass":{"cpuQOS":{"groupIdentity":0}}}]}`,
		sloconfig.BurstKey: `{"clusterStrategy":{"policy":"auto","cpuBurstPercent":100},"nodeStrategies":[
			{"nodeSelector":{"matchLabels":{"pool":"a"}},"policy":"cpuBurstOnly"}]}`,
		sloconfig.ApplicationsKey: `{"applications":[{"name":"nginx","qos":"LS"}],"nodeConfigs":[
			{"nodeSelector":{"matchLabels":{"pool":"a"}},"applications":[]}]}`,
		"cpu-normalization-config": `{"enable":true}`,
	})
	ignored := []string{
		"cpu-burst-config: clusterStrategy.policy: quota scaling of auto", "cpu-normalization-config",
		"resource-qos-config",
	}
	if diff := cmp.Diff(ignored, c.Ignored); diff != "" {
		t.Error(diff)
	}
	for pool, want := range map[string]string{
		"b": `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":65},` +
			`"resourceQOSStrategy":{"beClass":{"cpuQOS":{"enable":true,"groupIdentity":-1}}},` +
			`"cpuBurstStrategy":{"policy":"auto","cpuBurstPercent":100},` +
			`"hostApplications":[{"name":"nginx","qos":"LS"}]}`,
		"a": `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":40},` +
			`"resourceQOSStrategy":{"beClass":{"cpuQOS":{"enable":true,"groupIdentity":0}}},` +
			`"cpuBurstStrategy":{"policy":"cpuBurstOnly","cpuBurstPercent":100}}`,
	} {
		spec, err := c.NodeSLO(node("pool", pool))
		testkit.Check(t, err)
		if got, _ := json.Marshal(spec); string(got) != want {
			t.Errorf("pool %s:\n%s\nwant\n%s", pool, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, key := range []string{
		sloconfig.ColocationKey, sloconfig.ThresholdKey, sloconfig.QoSKey, sloconfig.BurstKey,
		sloconfig.ApplicationsKey,
	} {
		f.Add(key, `{"enable":true,"nodeConfigs":[{"nodeSelector":{},"enable":null}]}`)
		f.Add(key, `{"clusterStrategy":{"enable":true},"nodeStrategies":[null,{"nodeSelector":{}}]}`)
		f.Add(key, `{"applications":[{}],"nodeConfigs":[{"nodeSelector":{}}]}`)
		f.Add(key, "null")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		c, err := sloconfig.Parse(map[string]string{key: value})
		if err != nil {
			return
		}
		if _, err := c.Strategy(node("a", "b")); err != nil {
			t.Fatalf("%q gives a strategy with %v", value, err)
		}
		if _, err := c.NodeSLO(node("a", "b")); err != nil {
			t.Fatalf("%q gives a NodeSLO with %v", value, err)
		}
	})
}
