package plugin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// used is a running pod that uses so many milli-CPUs, by its name, on a node with 10 CPUs.
type used struct {
	*corev1.Pod
	milliCPU int64 // -1: the report of the node does not have the pod
}

func using(milliCPU int64, name, node string, more ...object.PodOption) used {
	p := pod(name, node, more...)
	p.UID = types.UID(name)
	return used{p, milliCPU}
}

// stage is nodes with reports.
type stage struct {
	cluster

	nodes []*corev1.Node
	use   map[string]int64 // milli-CPUs of nodes; those that are missing have no report
	pods  []used
	// age is how old reports are, by node. stale is that no report is made after the first one.
	age   map[string]time.Duration
	stale bool
}

// rounds runs some, two minutes apart, with a new report before each.
func (s *stage) rounds(t *testing.T, args string, rounds int) []string {
	t.Helper()
	s.cluster.pods, s.loads, s.refuse = nil, map[string]*load.Report{}, map[types.UID]bool{}
	for _, p := range s.pods {
		s.cluster.pods = append(s.cluster.pods, p.Pod)
	}
	for i := range rounds {
		s.later = time.Duration(i) * 2 * time.Minute
		for node, use := range s.use {
			if s.stale && i > 0 {
				break
			}
			r := &load.Report{
				Updated: s.Now().Add(-s.age[node]), Interval: time.Minute, Use: &amount.Pair{use, 1 << 30},
				Pods: map[string]load.PodUse{},
			}
			for _, p := range s.pods {
				if p.milliCPU >= 0 && p.Spec.NodeName == node {
					r.Pods[p.Namespace+"/"+p.Name] = load.PodUse{Use: amount.Pair{p.milliCPU, 1 << 20}, Prod: true}
				}
			}
			s.loads[node] = r
		}
		run(t, "LowNodeLoad", args, &s.cluster, s.nodes...)
	}
	return s.moved
}

func TestPodsLeaveNodesWhoseUseIsHigh(t *testing.T) {
	t.Parallel()
	const thresholds = "lowThresholds: {cpu: 45, memory: 55}, highThresholds: {cpu: 75, memory: 80}"
	const production = "lowThresholds: {cpu: 45}, highThresholds: {cpu: 95}, prodLowThresholds: {cpu: 10}, " +
		"prodHighThresholds: {cpu: 15}"
	cordoned := func(s *stage) { s.nodes[2].Spec.Unschedulable = true }
	prod := object.Priority(9500)
	for name, c := range map[string]struct {
		args   string
		rounds int
		change func(*stage)
		want   []string
	}{
		"not after five rounds":                                 {thresholds, 5, nil, nil},
		"after the sixth, until the use is below the threshold": {thresholds, 6, nil, []string{"a to lower"}},
		"and not again before six more":                         {thresholds, 11, nil, []string{"a to lower"}},
		"after fewer rounds where the arguments say so": {
			thresholds + ", anomalyCondition: {consecutiveAbnormalities: 1}", 2, nil, []string{"a to lower"},
		},
		"not by one report that is read again": {thresholds + ", nodeMetricExpirationSeconds: 9999", 9, func(s *stage) {
			s.stale = true
		}, nil},
		"not by a report that is too old": {thresholds, 6, func(s *stage) { s.age["high"] = 3 * time.Minute }, nil},
		"not to a node with a report that is too old": {
			thresholds, 6, func(s *stage) { s.age["low"], s.age["lower"] = 3*time.Minute, 3*time.Minute }, nil,
		},
		"not to nodes without reports": {
			thresholds, 6, func(s *stage) { delete(s.use, "low"); delete(s.use, "lower") }, nil,
		},
		"to the node that the scheduler names": {
			thresholds, 6, func(s *stage) { s.fits = map[string]string{"a": "low"} }, []string{"a to low"},
		},
		"not without such a node": {
			thresholds, 6, func(s *stage) { s.fits = map[string]string{"a": "none", "b": "high"} }, nil,
		},
		"to the least used node without nodeFit": {
			thresholds + ", nodeFit: false", 6, func(s *stage) { s.fits = map[string]string{"a": "none"} },
			[]string{"a to lower"},
		},
		"not to a node that is cordoned": {thresholds, 6, cordoned, []string{"a to low"}},
		"not to a node that a move is under way to": {
			thresholds, 6, func(s *stage) { s.cluster.moving = "lower" }, []string{"a to low"},
		},
		"not from a node that a move is under way from": {
			thresholds, 6, func(s *stage) { s.cluster.moving = "high" }, nil,
		},
		"not to a node that new pods will fill": {thresholds, 6, func(s *stage) {
			s.pods = append(s.pods, using(-1, "new", "lower", asks("cpu", "3")))
		}, []string{"a to low"}},
		"not with as few low nodes as numberOfNodes": {thresholds + ", numberOfNodes: 2", 6, nil, nil},
		"with one more low node than numberOfNodes": {
			thresholds + ", numberOfNodes: 1", 6, nil, []string{"a to lower"},
		},
		"the pods of a lower priority first": {thresholds, 6, func(s *stage) {
			object.Priority(10)(s.pods[0].Pod)
		}, []string{"b to lower", "a to low"}},
		"the pods of a lower cost first": {thresholds, 6, func(s *stage) {
			object.Annotation(annotation.EvictionCost, "5")(s.pods[0].Pod)
		}, []string{"b to lower", "a to low"}},
		"no pod that the report does not have": {thresholds, 6, func(s *stage) {
			s.pods[0].milliCPU = -1
		}, []string{"b to lower"}},
		"no pod that the evictors keep": {thresholds, 6, func(s *stage) {
			s.pods[0] = using(2000, "fixed", "high")
		}, []string{"b to lower"}},
		"no pod that lowers the use by less than five percent": {thresholds, 6, func(s *stage) {
			s.pods[0] = using(499, "small", "high")
		}, []string{"b to lower"}},
		"no pod of a DaemonSet": {thresholds, 6, func(s *stage) {
			s.pods[0] = using(2000, "daemon", "high", owner("DaemonSet", "d"))
		}, []string{"b to lower"}},
		"no pod that is younger than the report": {thresholds, 6, func(s *stage) {
			s.pods[0] = using(2000, "young", "high", object.Created(now.Add(time.Hour)))
		}, []string{"b to lower"}},
		"pods of the selected namespaces": {thresholds + ", evictableNamespaces: {exclude: [default]}", 6, nil, nil},
		"by distances from the mean": {
			"lowThresholds: {cpu: 5}, highThresholds: {cpu: 40}, useDeviationThresholds: true", 6, nil,
			[]string{"a to lower"},
		},
		"for production pods alone": {
			production,
			6, func(s *stage) { s.pods[1] = using(1600, "b", "high", prod) }, nil,
		},
		"production pods where one of them fits": {
			production,
			6, func(s *stage) {
				s.pods = []used{using(1400, "a", "high", prod), using(1000, "b", "high", prod)}
			},
			[]string{"a to low"},
		},
		"not while the plugin is paused": {thresholds + ", paused: true", 6, nil, nil},
		"within a pool": {
			"nodePools: [{name: a, nodeSelector: {matchLabels: {pool: a}}, " + thresholds + "}]", 6, nil,
			[]string{"a to low"},
		},
		"with the other thresholds for nodes of no pool": {
			thresholds + ", nodePools: [{name: b, nodeSelector: {matchLabels: {pool: b}}, " + thresholds + "}]", 6, nil,
			[]string{"a to low"},
		},
		"nodes of no pool are left out without these": {
			"nodePools: [{name: b, nodeSelector: {matchLabels: {pool: b}}, " + thresholds + "}]", 6, nil, nil,
		},
		"of the selected nodes": {thresholds + ", nodeSelector: {matchLabels: {pool: b}}", 6, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{
				nodes: []*corev1.Node{node("high", "pool=a"), node("low", "pool=a"), node("lower", "pool=b")},
				use:   map[string]int64{"high": 9000, "low": 3000, "lower": 2000},
				age:   map[string]time.Duration{},
				pods:  []used{using(2000, "a", "high"), using(1000, "b", "high")},
			}
			if c.change != nil {
				c.change(s)
			}
			if diff := cmp.Diff(c.want, s.rounds(t, "{"+c.args+"}", c.rounds)); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
		})
	}
}
