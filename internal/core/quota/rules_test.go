package quota_test

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const (
	sigs = "scheduling.sigs.k8s.io"
	gi   = int64(1) << 30
)

// quotaIn is a leaf below a parent in the namespace n, whose min is a quarter of its max.
func quotaIn(name, parent string, cores int64, change ...func(*quota.Spec)) quota.Spec {
	s := quota.Spec{
		Name: name, Namespace: "n", Group: sigs, Parent: parent,
		Min: amount.List{"cpu": cores * 250, "memory": cores * gi / 4},
		Max: amount.List{"cpu": cores * 1000, "memory": cores * gi},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func parent(s *quota.Spec) { s.IsParent = true }

func tree(id string) func(*quota.Spec) { return func(s *quota.Spec) { s.Tree = id } }

func rootOf(id string) func(*quota.Spec) {
	return func(s *quota.Spec) { s.Tree, s.IsRoot, s.IsParent = id, true, true }
}

func in(namespace string) func(*quota.Spec) { return func(s *quota.Spec) { s.Namespace = namespace } }

func lists(namespaces ...string) func(*quota.Spec) {
	return func(s *quota.Spec) { s.Namespaces = namespaces }
}

func least(d string, n int64) func(*quota.Spec) { return func(s *quota.Spec) { s.Min[d] = n } }

func most(d string, n int64) func(*quota.Spec) { return func(s *quota.Spec) { s.Max[d] = n } }

func weight(d string, n int64) func(*quota.Spec) {
	return func(s *quota.Spec) { s.Weight = amount.List{d: n} }
}

func without(d string) func(*quota.Spec) {
	return func(s *quota.Spec) {
		delete(s.Min, d)
		delete(s.Max, d)
	}
}

// largest is V15 of the CPUs of the quota q.
func largest(field, n string) string {
	return fmt.Sprintf("V15 %s[cpu] : resourceKey cpu of quota q %s %s > 1152921504606846976m, the most that a quota "+
		"can have", field, field, n)
}

func forced(s *quota.Spec) { s.ForceUpdate = true }

// chain is a path of n quotas, c1 on top.
func chain(n int) (path []quota.Spec) {
	above := ""
	for i := range n {
		name := fmt.Sprintf("c%d", i+1)
		path = append(path, quotaIn(name, above, 1, parent))
		above = name
	}
	return path
}

type edit struct {
	world []quota.Spec
	pods  map[quota.PodsOf]int
	used  amount.List
	relax bool
	old   string // the quota of the world that is changed; "" to create
	now   *quota.Spec
}

func (e edit) check(t *testing.T) []quota.Violation {
	t.Helper()
	c := quota.Change{New: e.now}
	for i := range e.world {
		if e.world[i].Name == e.old && (e.now == nil || e.world[i].Namespace == e.now.Namespace) {
			c.Old = &e.world[i]
		}
	}
	if e.old != "" && c.Old == nil {
		t.Fatalf("no quota %s", e.old)
	}
	return quota.NewChecker(quota.World{
		Quotas: e.world, Pods: e.pods, RelaxResourceKeys: e.relax,
		Used: func(string) amount.List { return e.used },
	}).Check(c)
}

func spec(s quota.Spec) *quota.Spec { return &s }

// seed003 is the valid example of the seed.
func seed003() []quota.Spec {
	return []quota.Spec{
		quotaIn("parentA", "", 100, parent, least("cpu", 100_000), least("memory", 200*gi), most("memory", 200*gi)),
		quotaIn("childA1", "parentA", 40, least("cpu", 20_000), least("memory", 40*gi), most("memory", 100*gi)),
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	p := quotaIn("p", "", 100, parent)
	a, b := quotaIn("a", "p", 50), quotaIn("b", "p", 50)
	for name, test := range map[string]struct {
		edit
		want []string // "rule field other: text"
	}{
		"the example of the seed": {edit: edit{world: seed003()[:1], now: &seed003()[1]}},
		"a child with more max than its parent": {
			edit: edit{world: seed003(), old: "childA1", now: spec(quotaIn("childA1", "parentA", 400, least("cpu", 1),
				least("memory", 1)))},
		},
		"children whose min is all of their parent's": {edit: edit{world: []quota.Spec{p, a}, now: &b}},

		"V1: a negative min": {
			edit: edit{now: spec(quotaIn("q", "", 1, least("cpu", -1)))},
			want: []string{"V1 min : q quota.Spec.Min's value < 0, in dimensions: [cpu]"},
		},
		"V1: negative amounts everywhere": {
			edit: edit{now: &quota.Spec{
				Name: "q", Namespace: "n", Max: amount.List{"a": -1, "b": -2, "c": 0}, Weight: amount.List{"a": -1},
				Total: amount.List{"d": -5},
			}},
			want: []string{
				"V1 max : q quota.Spec.Max's value < 0, in dimensions: [a b]",
				"V1 weight : q shared-weight's value < 0, in dimensions: [a]",
				"V1 total : q total-resource's value < 0, in dimensions: [d]",
			},
		},
		"V2: min above max": {
			edit: edit{now: spec(quotaIn("q", "", 3, least("cpu", 5000)))},
			want: []string{"V2 min[cpu] : resourceKey cpu of quota q min 5 > max 3"},
		},
		"V2: min above max in bytes": {
			edit: edit{now: spec(quotaIn("q", "", 3, least("memory", 4*gi)))},
			want: []string{"V2 min[memory] : resourceKey memory of quota q min 4Gi > max 3Gi"},
		},
		"V2: min without max": {
			edit: edit{now: spec(quotaIn("q", "", 3, least("nvidia.com/gpu", 0)))},
			want: []string{
				"V2 min[nvidia.com/gpu] : resourceKey nvidia.com/gpu of quota q is included in min, which is not " +
					"included in max",
			},
		},
		"V3: a parent that does not exist": {
			edit: edit{now: spec(quotaIn("q", "p", 1))},
			want: []string{"V3 parent p: q has parentName p but not find parentInfo"},
		},
		"V3: a parent that is a leaf": {
			edit: edit{world: []quota.Spec{p, a}, now: spec(quotaIn("q", "a", 1))},
			want: []string{"V3 parent a: q has parentName a but the parentQuotaInfo's IsParent is false"},
		},
		"the root by its name": {edit: edit{now: spec(quotaIn("q", quota.Root, 1))}},
		"V4: a leaf with children": {
			edit: edit{world: []quota.Spec{p, a, b}, old: "p", now: spec(quotaIn("p", "", 100))},
			want: []string{"V4 isParent a: quota has children, isParent is forbidden to modify as false: p has 2, " +
				"such as a"},
		},
		"V4: a parent with pods that name it": {
			edit: edit{
				world: []quota.Spec{p, a}, old: "a", now: spec(quotaIn("a", "p", 50, parent)),
				pods: map[quota.PodsOf]int{{Namespace: "z", Quota: "a"}: 2, {Namespace: "y", Quota: "a"}: 1},
			},
			want: []string{"V4 isParent y: quota has bound pods, isParent is forbidden to modify as true: a has 3 " +
				"pods, " +
				"such as those of namespace y"},
		},
		"V4: a parent with the pods of its namespace": {
			edit: edit{
				world: []quota.Spec{quotaIn("q", "", 1)}, old: "q", now: spec(quotaIn("q", "", 1, parent)),
				pods: map[quota.PodsOf]int{{Namespace: "n"}: 1},
			},
			want: []string{"V4 isParent n: quota has bound pods, isParent is forbidden to modify as true: q has 1 " +
				"pods, " +
				"such as those of namespace n"},
		},
		"V4: a new parent that lists a namespace with pods": {
			edit: edit{
				now:  spec(quotaIn("q", "", 1, parent, lists("x"))),
				pods: map[quota.PodsOf]int{{Namespace: "x"}: 1},
			},
			want: []string{"V4 isParent x: quota has bound pods, isParent is forbidden to modify as true: q has 1 " +
				"pods, " +
				"such as those of namespace x"},
		},
		"V4: the default quota": {
			edit: edit{
				world: []quota.Spec{quotaIn(quota.Default, "", 1)}, old: quota.Default,
				now: spec(quotaIn(quota.Default, "", 1, parent)),
			},
			want: []string{"V4 isParent : quota has bound pods, isParent is forbidden to modify as true: " +
				"koordinator-default-quota has 0 pods, such as those of namespace any"},
		},
		"a parent while other quotas have pods": {
			edit: edit{
				world: []quota.Spec{p, a, b}, old: "a", now: spec(quotaIn("a", "p", 50, parent)),
				pods: map[quota.PodsOf]int{{Namespace: "n", Quota: "b"}: 2, {Namespace: "n"}: 1},
			},
		},
		"V5: a child too much": {
			edit: edit{world: []quota.Spec{p, a, b}, now: spec(quotaIn("c", "p", 1))},
			want: []string{
				"V5 min[cpu] p: the children's min exceeds the parent's: " +
					"all brothers' MinQuota > parent MinQuota, parent: p; cpu: 25250m > 25",
				"V5 min[memory] p: the children's min exceeds the parent's: " +
					"all brothers' MinQuota > parent MinQuota, parent: p; memory: 25856Mi > 25Gi",
			},
		},
		"V5: a parent with too little": {
			edit: edit{
				world: []quota.Spec{p, a, b}, old: "p",
				now: spec(quotaIn("p", "", 100, parent, least("cpu", 24_000))),
			},
			want: []string{"V5 min[cpu] a: the children's min exceeds the parent's: " +
				"all children's MinQuota > current MinQuota, current: p; cpu: 25 > 24"},
		},
		"V5: not with allow-force-update": {
			edit: edit{
				world: []quota.Spec{p, a, b}, old: "p",
				now: spec(quotaIn("p", "", 100, parent, forced, least("cpu", 24_000))),
			},
		},
		"V5: not for the root of a tree": {
			edit: edit{
				world: []quota.Spec{quotaIn("p", "", 100, rootOf("t")), quotaIn("a", "p", 100, tree("t"))}, old: "p",
				now: spec(quotaIn("p", "", 100, rootOf("t"), least("cpu", 0))),
			},
		},
		"V5: not below the root": {
			edit: edit{world: []quota.Spec{quotaIn("a", "", math.MaxInt64/gi)}, now: spec(quotaIn("b", "", 1))},
		},
		"V6: another tree": {
			edit: edit{world: []quota.Spec{quotaIn("q", "", 1, tree("a"))}, old: "q", now: spec(quotaIn("q", "", 1,
				tree("b")))},
			want: []string{"V6 tree : q tree id changed [a] vs [b]"},
		},
		"V6: a tree unlike that of the parent": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("a", "p", 1, tree("t")))},
			want: []string{"V6 tree p: a tree id is different from parent p, [t] vs []"},
		},
		"V6: a tree unlike that of a child": {
			edit: edit{world: []quota.Spec{a}, now: spec(quotaIn("p", "", 100, parent, tree("t")))},
			want: []string{"V6 tree a: p tree id is different from child a, [t] vs []"},
		},
		"V7: a child with fewer dimensions": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("a", "p", 1, without("memory")))},
			want: []string{"V7 max p: a's max keys [cpu] are not the same with p's [cpu memory]"},
		},
		"V7: fewer dimensions are enough": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("a", "p", 1, without("memory"))), relax: true},
		},
		"V7: a child with more dimensions": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("a", "p", 1, most("gpu", 1))), relax: true},
			want: []string{"V7 max p: a's max keys [cpu gpu memory] are not all included in p's [cpu memory]"},
		},
		"V7: a parent that loses a dimension of min": {
			edit: edit{world: []quota.Spec{p, a}, old: "p", now: spec(quotaIn("p", "", 100, parent,
				func(s *quota.Spec) { delete(s.Min, "memory") }))},
			want: []string{
				"V7 min a: a's min keys [cpu memory] are not all included in p's [cpu]",
				"V5 min[memory] a: the children's min exceeds the parent's: " +
					"all children's MinQuota > current MinQuota, current: p; memory: 12800Mi > 0",
			},
		},
		"V8: max below used": {
			edit: edit{
				world: []quota.Spec{quotaIn("q", "", 9)}, old: "q", used: amount.List{"cpu": 7500, "memory": 1 << 60},
				now: spec(quotaIn("q", "", 7, func(s *quota.Spec) { s.Strict = []string{"cpu", "gpu"} })),
			},
			want: []string{"V8 max[cpu] : resourceKey cpu of quota q max 7 < used 7500m"},
		},
		"V8: max of other dimensions": {
			edit: edit{
				world: []quota.Spec{quotaIn("q", "", 9)}, old: "q", used: amount.List{"cpu": 7000, "memory": 1 << 60},
				now: spec(quotaIn("q", "", 7, func(s *quota.Spec) { s.Strict = []string{"cpu"} })),
			},
		},
		"V9: children": {
			edit: edit{world: []quota.Spec{p, a, b}, old: "p"},
			want: []string{"V9 name a: delete quota failed, quota p has 2 child quotas, such as a"},
		},
		"V9: pods by namespace": {
			edit: edit{
				world: []quota.Spec{quotaIn("q", "", 1)}, old: "q",
				pods: map[quota.PodsOf]int{{Namespace: "n"}: 4, {Namespace: "m"}: 9},
			},
			want: []string{"V9 name n: delete quota failed, quota q has 4 pods, such as those of namespace n"},
		},
		"V9: a reserved quota": {
			edit: edit{world: []quota.Spec{quotaIn(quota.Default, "", 1)}, old: quota.Default},
			want: []string{"V9 name : delete quota failed, quota koordinator-default-quota is reserved"},
		},
		"deletion of a leaf": {edit: edit{
			world: []quota.Spec{p, a, b}, old: "b",
			pods: map[quota.PodsOf]int{{Namespace: "n", Quota: "a"}: 1},
		}},
		"deletion of a namesake": {edit: edit{world: []quota.Spec{quotaIn("p", "", 9, in("other")), p, a}, old: "p"}},
		"V10: the name in another namespace": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("p", "", 1, in("other")))},
			want: []string{
				"V10 name n/p of scheduling.sigs.k8s.io: n/p of scheduling.sigs.k8s.io exists already: " +
					"names are unique in the cluster",
			},
		},
		"V10: the name in the other group": {
			edit: edit{world: []quota.Spec{p}, now: spec(quotaIn("p", "", 1,
				func(s *quota.Spec) { s.Group = "other" }))},
			want: []string{
				"V10 name n/p of scheduling.sigs.k8s.io: n/p of scheduling.sigs.k8s.io exists already: " +
					"names are unique in the cluster",
			},
		},
		"V11: a namespace in two lists": {
			edit: edit{world: []quota.Spec{quotaIn("a", "", 1, lists("x", "y"))}, now: spec(quotaIn("b", "", 1,
				lists("y")))},
			want: []string{"V11 namespaces a: namespace y is listed by b and by a"},
		},
		"V11: a list against a quota of that name": {
			edit: edit{
				world: []quota.Spec{p, quotaIn("x", "p", 1, in("x")), quotaIn("y", "p", 1, in("x"))},
				now:   spec(quotaIn("b", "", 1, lists("x"))),
			},
			want: []string{"V11 namespaces x: namespace x is listed by b and has its own quota x"},
		},
		"V11: a list against the only quota of a namespace": {
			edit: edit{world: []quota.Spec{quotaIn("a", "", 1, in("x"))}, now: spec(quotaIn("b", "", 1, lists("x")))},
			want: []string{"V11 namespaces a: namespace x is listed by b and has its own quota a"},
		},
		"V11: the only quota of a listed namespace": {
			edit: edit{world: []quota.Spec{quotaIn("b", "", 1, lists("x"))}, now: spec(quotaIn("a", "", 1, in("x")))},
			want: []string{"V11 name b: namespace x has its own quota a and is listed by b"},
		},
		"V11: deletion leaves one quota alone in a listed namespace": {
			edit: edit{
				world: []quota.Spec{quotaIn("a", "", 1, in("x")), quotaIn("c", "", 1, in("x")), quotaIn("b", "", 1,
					lists("x"))},
				old: "c",
			},
			want: []string{"V11 name b: namespace x has its own quota a and is listed by b"},
		},
		"a quota that lists its own namespace": {edit: edit{now: spec(quotaIn("a", "", 1, in("x"), lists("x")))}},
		"V13: its own parent": {
			edit: edit{world: []quota.Spec{p}, old: "p", now: spec(quotaIn("p", "p", 100, parent))},
			want: []string{"V13 parent p: parent p is p or below it: p -> p"},
		},
		"V13: a cycle": {
			edit: edit{world: chain(3), old: "c1", now: spec(quotaIn("c1", "c3", 1, parent))},
			want: []string{"V13 parent c3: parent c3 is c1 or below it: c1 -> c3 -> c2 -> c1"},
		},
		"a path of 16": {edit: edit{world: chain(15), now: spec(quotaIn("q", "c15", 1))}},
		"V13: a path of 17": {
			edit: edit{world: chain(16), now: spec(quotaIn("q", "c16", 1))},
			want: []string{"V13 parent c16: q with parentName c16 is on a path of more than 16 quotas"},
		},
		"V13: a subtree that makes the path too long": {
			edit: edit{
				world: append(chain(14), quotaIn("q", "", 1, parent), quotaIn("r", "q", 1, parent), quotaIn("s",
					"r", 1)),
				old: "q", now: spec(quotaIn("q", "c14", 1, parent)),
			},
			want: []string{"V13 parent c14: q with parentName c14 is on a path of more than 16 quotas"},
		},
		"V14: a weight without max": {
			edit: edit{now: spec(quotaIn("q", "", 1, weight("gpu", 1)))},
			want: []string{"V14 weight[gpu] : resourceKey gpu of quota q is included in shared-weight, which is not " +
				"included in max"},
		},
		"a weight of 0": {edit: edit{now: spec(quotaIn("q", "", 1, weight("cpu", 0)))}},
		"V15: every field": {
			edit: edit{now: spec(quotaIn("q", "", 1, rootOf("t"), most("cpu", 1<<60+1), least("cpu", 1<<60+1),
				weight("cpu", 1<<60+1), func(s *quota.Spec) { s.Total = amount.List{"cpu": 1<<60 + 1} }))},
			want: []string{
				largest("min", "1152921504606846977m"), largest("max", "1152921504606846977m"),
				largest("weight", "1152921504606846977m"), largest("total", "1152921504606846977m"),
			},
		},
		"V15: an amount that was cut to an int64": {
			edit: edit{now: spec(quotaIn("q", "", 1, most("cpu", math.MaxInt64)))},
			want: []string{largest("max", "9223372036854775807m")},
		},
		"the largest amounts there are, of siblings": {
			edit: edit{
				world: []quota.Spec{
					quotaIn("a", "", 1, most("cpu", 1<<60)), quotaIn("b", "", 1, most("cpu", math.MaxInt64)),
				},
				now: spec(quotaIn("q", "", 1, most("cpu", 1<<60), least("cpu", 1<<60))),
			},
		},
		"an unlimited quota is older than the rule": {
			edit: edit{
				world: []quota.Spec{quotaIn("q", "", 1, most("cpu", math.MaxInt64))}, old: "q",
				now: spec(quotaIn("q", "", 1, most("cpu", math.MaxInt64), least("cpu", 0))),
			},
		},
		"an unlimited default quota": {
			edit: edit{
				world: []quota.Spec{quotaIn(quota.Default, "", 1)}, old: quota.Default,
				now: spec(quotaIn(quota.Default, "", 1, most("cpu", math.MaxInt64))),
			},
		},
		"V16: two roots": {
			edit: edit{world: []quota.Spec{quotaIn("a", "", 1, rootOf("t"))}, now: spec(quotaIn("b", "", 1,
				rootOf("t")))},
			want: []string{"V16 isRoot a: b and a are both the root of tree [t]"},
		},
		"roots of two trees": {
			edit: edit{
				world: []quota.Spec{quotaIn("a", "", 1, rootOf("t"))}, now: spec(quotaIn("b", "", 1, rootOf("u"))),
			},
		},
		"V16: a root without a tree": {
			edit: edit{now: spec(quotaIn("b", "", 1, rootOf("")))},
			want: []string{"V16 isRoot : b is the root of a tree and has no tree id"},
		},
		"V16: a root below a parent": {
			edit: edit{
				world: []quota.Spec{quotaIn("p", "", 9, parent, tree("t"))},
				now:   spec(quotaIn("b", "p", 1, rootOf("t"))),
			},
			want: []string{"V16 isRoot p: b is the root of tree [t] and has parentName p"},
		},
		"V17: the root": {
			edit: edit{
				world: []quota.Spec{quotaIn(quota.Root, "", 1)}, old: quota.Root,
				now: spec(quotaIn(quota.Root, "", 2)),
			},
			want: []string{"V17 name : quota koordinator-root-quota is reserved: it cannot be created or edited; " +
				"koordinator-default-quota can be edited"},
		},
		"V17: the system quota is not created": {
			edit: edit{now: spec(quotaIn(quota.System, "", 1))},
			want: []string{"V17 name : quota koordinator-system-quota is reserved: it cannot be created or edited; " +
				"koordinator-default-quota can be edited"},
		},
		"metadata of the system quota": {
			edit: edit{
				world: []quota.Spec{quotaIn(quota.System, "", 1)}, old: quota.System,
				now: spec(quotaIn(quota.System, "", 1)),
			},
		},
		"the max of the default quota": {
			edit: edit{
				world: []quota.Spec{quotaIn(quota.Default, "", 1)}, old: quota.Default,
				now: spec(quotaIn(quota.Default, "", 2)),
			},
		},
		"an edit in a tree that is older than the rules": {
			edit: edit{
				world: []quota.Spec{p, a, b, quotaIn("c", "p", 50), quotaIn("c", "gone", 50, in("other"))}, old: "b",
				now: spec(quotaIn("b", "p", 50, func(s *quota.Spec) { s.KeepsMin = true })),
			},
		},
		"V5: an edit that makes an old fault worse": {
			edit: edit{
				world: []quota.Spec{p, a, b, quotaIn("c", "p", 1)}, old: "b",
				now: spec(quotaIn("b", "p", 50, least("cpu", 13_000))),
			},
			want: []string{"V5 min[cpu] p: the children's min exceeds the parent's: " +
				"all brothers' MinQuota > parent MinQuota, parent: p; cpu: 25750m > 25"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, v := range test.check(t) {
				got = append(got, fmt.Sprintf("%s %s %s: %s", v.Rule, v.Field, v.Other, v.Text))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "))
			}
		})
	}
}

// Q26: the quota of a namespace is ambiguous.
func TestMappingTakesTheFirstHit(t *testing.T) {
	t.Parallel()
	quotas := []quota.Spec{
		quotaIn("p", "", 1, parent, in("shared")),
		quotaIn("team", "p", 1, in("team")), quotaIn("team-2", "p", 1, in("team")),
		quotaIn("only", "", 1, in("solo")), quotaIn("deep", "p", 1, in("deeper")), quotaIn("up", "", 1, parent,
			in("upper")),
		quotaIn("lister", "p", 1, in("shared"), lists("listed", "team", "deeper")),
		quotaIn("late", "p", 1, in("shared"), lists("listed")),
		quotaIn(quota.Default, "", 1, in("koordinator-system"), lists("none")),
		quotaIn(quota.System, "", 1, in("koordinator-system")), quotaIn("infra", "", 1, in("koordinator-system")),
	}
	for p, want := range map[quota.PodsOf]string{
		{Namespace: "team", Quota: "only"}: "only", // what they name
		{Namespace: "team"}:                "team", // named like the namespace, before any list
		{Namespace: "solo"}:                "only", // alone in the namespace
		{Namespace: "deeper"}:              "lister",
		{Namespace: "listed"}:              "late", // of two lists the first by name
		{Namespace: "upper"}:               quota.Default,
		{Namespace: "shared"}:              quota.Default, // several, none named like it
		{Namespace: "koordinator-system"}:  "infra",       // reserved quotas take no pods of namespaces
		{Namespace: "none"}:                quota.Default,

		{Namespace: "team", Quota: quota.System}:  quota.System,
		{Namespace: "team", Quota: quota.Default}: quota.Default,

		// Of bound pods, what they were bound in comes before Default and System alone.
		{Namespace: "none", Bound: "only"}:                          "only",
		{Namespace: "none", Quota: quota.System, Bound: "only"}:     "only",
		{Namespace: "none", Quota: quota.Default, Bound: "only"}:    "only",
		{Namespace: "none", Quota: "team", Bound: "only"}:           "team",
		{Namespace: "team", Bound: "only"}:                          "team",
		{Namespace: "listed", Bound: "only"}:                        "late",
		{Namespace: "none", Bound: "gone"}:                          quota.Default,
		{Namespace: "none", Bound: "koordinator-default-quota"}:     quota.Default,
		{Namespace: "none", Quota: quota.System, Bound: quota.Root}: quota.System,
	} {
		for range 2 {
			if got, found := quota.NewMapping(quotas).Of(p); got != want || !found {
				t.Errorf("%+v: got %s, %v; want %s", p, got, found, want)
			}
			slices.Reverse(quotas)
		}
	}
	for _, name := range []string{"gone", quota.Root} {
		got, found := quota.NewMapping(quotas).Of(quota.PodsOf{Namespace: "team", Quota: name})
		if got != quota.Default || found {
			t.Errorf("pods that name %s: got %s, %v; want %s, false", name, got, found, quota.Default)
		}
		got, found = quota.NewMapping(quotas).Of(quota.PodsOf{Namespace: "team", Quota: name, Bound: "only"})
		if got != "only" || found {
			t.Errorf("bound pods that name %s: got %s, %v; want only, false", name, got, found)
		}
	}
}

func TestPodsAreKeptOutOfParents(t *testing.T) {
	t.Parallel()
	w := quota.World{Quotas: []quota.Spec{
		quotaIn("p", "", 9, parent, lists("x")), quotaIn("a", "p", 1), quotaIn("m", "p", 1, parent, in("m")),
	}}
	for p, want := range map[quota.PodsOf]string{
		{Namespace: "n", Quota: "a"}:    "",
		{Namespace: "n", Quota: "gone"}: "",
		{Namespace: "n"}:                "",
		{Namespace: "n", Quota: "p"}: "pods of namespace n are in quota p, which is a parent: only leaves " +
			"have pods",
		{Namespace: "x"}: "pods of namespace x are in quota p, which is a parent: only leaves " +
			"have pods",
		{Namespace: "m"}: "pods of namespace m are in quota m, which is a parent: only leaves " +
			"have pods",
		{Namespace: "m", Quota: "a"}: "",
		{Namespace: "n", Quota: quota.Root}: "pods of namespace n are in quota koordinator-root-quota, which is a " +
			"parent: only leaves have pods",
	} {
		got := quota.NewChecker(w).CheckPods(p)
		switch {
		case want == "" && len(got) > 0, want != "" && (len(got) != 1 || got[0].Text != want ||
			got[0].Rule != quota.V12):
			t.Errorf("%+v: got %+v, want %q", p, got, want)
		}
	}
}

// state is a small cluster in which rules collide often.
type state struct {
	quotas []quota.Spec
	pods   map[quota.PodsOf]int
}

func (s state) checker() *quota.Checker {
	return quota.NewChecker(quota.World{Quotas: s.quotas, Pods: s.pods})
}

var (
	someNames      = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"})
	someNamespaces = rapid.SampledFrom([]string{"a", "b", "n", "n", "x"})
)

func someSpec(forces bool) *rapid.Generator[quota.Spec] {
	return rapid.Custom(func(t *rapid.T) quota.Spec {
		amounts := func(name string, most int64) amount.List {
			a := amount.List{"cpu": rapid.Int64Range(0, most).Draw(t, name)}
			if rapid.IntRange(0, 3).Draw(t, "gpus") == 0 {
				a["gpu"] = rapid.SampledFrom([]int64{-1, 0, 1, 1 << 60, 1<<60 + 1}).Draw(t, name)
			}
			return a
		}
		s := quota.Spec{
			Name: someNames.Draw(t, "name"), Namespace: someNamespaces.Draw(t, "namespace"),
			Parent:   rapid.OneOf(rapid.Just(""), someNames).Draw(t, "parent"),
			Tree:     rapid.SampledFrom([]string{"", "", "", "t"}).Draw(t, "tree"),
			IsParent: rapid.Bool().Draw(t, "isParent"), IsRoot: rapid.IntRange(0, 9).Draw(t, "isRoot") == 0,
			Min: amounts("min", 4), Max: amounts("max", 12),
		}
		s.ForceUpdate = forces && rapid.IntRange(0, 3).Draw(t, "forced") == 0
		if rapid.IntRange(0, 4).Draw(t, "weighs") == 0 {
			s.Weight = amounts("weight", 3)
		}
		if rapid.IntRange(0, 2).Draw(t, "lists") == 0 {
			s.Namespaces = rapid.SliceOfNDistinct(someNamespaces, 1, 2, rapid.ID).Draw(t, "namespaces")
		}
		return s
	})
}

// someChange draws a change that is often a small one.
func someChange(t *rapid.T, s state, forces bool) quota.Change {
	if len(s.quotas) == 0 || rapid.IntRange(0, 2).Draw(t, "create") == 0 {
		now := someSpec(forces).Draw(t, "new")
		for i := range s.quotas {
			if o := s.quotas[i]; o.Name == now.Name && o.Namespace == now.Namespace {
				return quota.Change{Old: &o, New: &now}
			}
		}
		return quota.Change{New: &now}
	}
	old := rapid.SampledFrom(s.quotas).Draw(t, "old")
	if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
		return quota.Change{Old: &old}
	}
	now, other := old, someSpec(forces).Draw(t, "edited")
	switch rapid.IntRange(0, 6).Draw(t, "edit") {
	case 0:
		now.Parent = other.Parent
	case 1:
		now.IsParent = other.IsParent
	case 2:
		now.Min = other.Min
	case 3:
		now.Max, now.Weight = other.Max, other.Weight
	case 4:
		now.Namespaces = other.Namespaces
	case 5:
		now.IsRoot = other.IsRoot
	default:
		now.Tree, now.ForceUpdate = other.Tree, other.ForceUpdate
	}
	return quota.Change{Old: &old, New: &now}
}

func (s *state) apply(c quota.Change) {
	same := func(o quota.Spec) bool {
		for _, v := range []*quota.Spec{c.Old, c.New} {
			if v != nil && v.Name == o.Name && v.Namespace == o.Namespace {
				return true
			}
		}
		return false
	}
	s.quotas = slices.DeleteFunc(s.quotas, same)
	if c.New != nil {
		s.quotas = append(s.quotas, *c.New)
	}
}

// home is §2.1 of the reference, read aloud.
func (s state) home(p quota.PodsOf) string {
	var here, lists []quota.Spec
	for _, q := range s.quotas {
		if p.Quota == q.Name {
			return q.Name
		}
		if q.Namespace == p.Namespace {
			here = append(here, q)
		}
		if slices.Contains(q.Namespaces, p.Namespace) {
			lists = append(lists, q)
		}
	}
	switch {
	case p.Quota != "":
		return quota.Default
	case slices.ContainsFunc(here, func(q quota.Spec) bool { return q.Name == p.Namespace }):
		return p.Namespace
	case len(here) == 1 && !here[0].IsParent && here[0].Parent == "":
		return here[0].Name
	case len(lists) > 0:
		return lists[0].Name
	}
	return quota.Default
}

// faults evaluates every rule about a state over all quotas and pairs of quotas.
func (s state) faults() (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	byName := map[string]quota.Spec{}
	for _, q := range s.quotas {
		if _, twice := byName[q.Name]; twice {
			fault("V10 %s", q.Name)
		}
		byName[q.Name] = q
	}
	listed := map[string]string{}
	for _, q := range s.quotas {
		p, exists := byName[q.Parent]
		if q.Parent != "" {
			if !exists || !p.IsParent {
				fault("V3 %s", q.Name)
			}
			if q.Tree != p.Tree {
				fault("V6 %s", q.Name)
			}
			for d := range q.Min {
				if _, ok := p.Min[d]; !ok {
					fault("V7 min %s", q.Name)
				}
			}
			for _, d := range []string{"cpu", "gpu"} {
				if _, mine := q.Max[d]; true {
					if _, theirs := p.Max[d]; mine != theirs {
						fault("V7 max %s", q.Name)
					}
				}
			}
		}
		for d, n := range q.Min {
			if ceiling, ok := q.Max[d]; !ok || n > ceiling || n < 0 {
				fault("V1 V2 %s", q.Name)
			}
		}
		for _, amounts := range []amount.List{q.Min, q.Max, q.Weight} {
			for d, n := range amounts {
				if n < 0 || n > 1<<60 {
					fault("V1 V15 %s %s", q.Name, d)
				}
			}
		}
		for d, n := range q.Weight {
			if _, ok := q.Max[d]; !ok || n < 0 {
				fault("V1 V14 %s", q.Name)
			}
		}
		for _, namespace := range q.Namespaces {
			if other, taken := listed[namespace]; taken {
				fault("V11 %s %s", q.Name, other)
			}
			listed[namespace] = q.Name
		}
		if q.IsRoot && (q.Tree == "" || q.Parent != "") {
			fault("V16 %s", q.Name)
		}
		steps := 0
		for n := q; n.Parent != "" && steps <= len(s.quotas); n = byName[n.Parent] {
			steps++
		}
		if steps > len(s.quotas) || steps >= quota.MaxDepth {
			fault("V13 %s", q.Name)
		}
		for _, o := range s.quotas {
			if q.IsRoot && o.IsRoot && q.Tree == o.Tree && q.Name != o.Name {
				fault("V16 %s %s", q.Name, o.Name)
			}
		}
	}
	for namespace, lister := range listed {
		if own := (state{quotas: slices.DeleteFunc(slices.Clone(s.quotas), func(q quota.Spec) bool {
			return q.Namespace != namespace
		})}).home(quota.PodsOf{Namespace: namespace}); own != quota.Default && own != lister {
			// With the quotas of the namespace alone, a list of one of them may count too.
			if q := byName[own]; !slices.Contains(q.Namespaces, namespace) {
				fault("V11 %s %s", lister, own)
			}
		}
	}
	for p, n := range s.pods {
		if q := byName[s.home(p)]; n > 0 && q.IsParent {
			fault("V4 V12 %+v in %s", p, q.Name)
		}
	}
	for _, p := range append([]quota.Spec{{IsRoot: true}}, s.quotas...) {
		exempt := p.IsRoot || p.ForceUpdate
		sums := map[string]*big.Int{}
		for _, c := range s.quotas {
			if c.Parent != p.Name {
				continue
			}
			exempt = exempt || c.ForceUpdate
			if !p.IsParent && p.Name != "" {
				fault("V4 %s", p.Name)
			}
			if c.IsRoot {
				continue
			}
			for d := range c.Max {
				if sums[d] == nil {
					sums[d] = new(big.Int)
				}
				sums[d].Add(sums[d], big.NewInt(c.Min[d]))
			}
		}
		for d, sum := range sums {
			if !exempt && sum.Cmp(big.NewInt(p.Min[d])) > 0 {
				fault("V5 %s %s", d, p.Name)
			}
		}
	}
	return found
}

// A sequence of accepted changes leaves a cluster in which every rule holds, evaluated from scratch.
func TestAcceptedChangesKeepEveryRule(t *testing.T) {
	accepted, refused := 0, map[quota.Rule]int{}
	rapid.Check(t, func(t *rapid.T) {
		s, forces := state{pods: map[quota.PodsOf]int{}}, rapid.Bool().Draw(t, "forces")
		for range rapid.IntRange(1, 100).Draw(t, "changes") {
			if rapid.IntRange(0, 5).Draw(t, "pods") == 0 {
				p := quota.PodsOf{
					Namespace: someNamespaces.Draw(t, "of"),
					Quota:     rapid.OneOf(rapid.Just(""), someNames).Draw(t, "label"),
				}
				if len(s.checker().CheckPods(p)) == 0 {
					s.pods[p] = rapid.IntRange(0, 2).Draw(t, "count")
				}
				continue
			}
			c := someChange(t, s, forces)
			violations := s.checker().Check(c)
			for _, v := range violations {
				refused[v.Rule]++
			}
			if len(violations) > 0 {
				continue
			}
			accepted++
			s.apply(c)
			if found := s.faults(); len(found) > 0 {
				t.Fatalf("%+v -> %+v was accepted, and left %v in %+v", c.Old, c.New, found, s)
			}
		}
	})
	if testing.Short() { // a fifth of the cases does not meet every rule
		return
	}
	if accepted < 1000 {
		t.Errorf("only %d changes were accepted", accepted)
	}
	for _, r := range []quota.Rule{
		quota.V1, quota.V2, quota.V3, quota.V4, quota.V5, quota.V6, quota.V7, quota.V9, quota.V10, quota.V11, quota.V13,
		quota.V14, quota.V15, quota.V16,
	} {
		if refused[r] == 0 {
			t.Errorf("%s refused nothing", r)
		}
	}
}

// A change that breaks no rule in the eyes of the naive evaluation is accepted, in a state without faults.
func TestHarmlessChangesAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := state{pods: map[quota.PodsOf]int{}}
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			c := someChange(t, s, false)
			after := state{quotas: slices.Clone(s.quotas), pods: s.pods}
			after.apply(c)
			moved := c.Old != nil && c.New != nil && c.Old.Tree != c.New.Tree
			if moved || len(after.faults()) > 0 {
				continue
			}
			got := slices.DeleteFunc(s.checker().Check(c), func(v quota.Violation) bool {
				// Deletions, and the children of the root of a tree, are not in the naive evaluation.
				return v.Rule == quota.V9 || v.Rule == quota.V5 && slices.ContainsFunc(s.quotas,
					func(q quota.Spec) bool {
						return q.Name == v.Other && q.IsRoot
					})
			})
			if len(got) > 0 {
				t.Fatalf("%+v -> %+v is harmless in %+v, and was refused: %+v", c.Old, c.New, s, got)
			}
			s = after
		}
	})
}

// Whatever is wrong with a tree, an edit that changes nothing is accepted, and none panics.
func TestEditsThatChangeNothingAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := state{quotas: rapid.SliceOfNDistinct(someSpec(true), 1, 12, func(s quota.Spec) string {
			return s.Namespace + "/" + s.Name
		}).Draw(t, "quotas"), pods: map[quota.PodsOf]int{{Namespace: "a"}: 1, {Namespace: "n", Quota: "b"}: 1}}
		q := rapid.SampledFrom(s.quotas).Draw(t, "quota")
		if got := s.checker().Check(quota.Change{Old: &q, New: &q}); len(got) > 0 {
			t.Fatalf("%+v in %+v: %+v", q, s, got)
		}
		s.checker().Check(quota.Change{Old: &q})
		s.checker().Check(someChange(t, s, true))
	})
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("quotas=%d", n), func(b *testing.B) {
			w := quota.World{}
			for i := range n / 10 {
				team := fmt.Sprintf("t%d", i)
				w.Quotas = append(w.Quotas, quotaIn(team, "", 1000, parent))
				for j := range 9 {
					w.Quotas = append(w.Quotas, quotaIn(fmt.Sprintf("%s-%d", team, j), team, 10))
				}
			}
			now := w.Quotas[5]
			now.KeepsMin = true
			b.ReportAllocs()
			for b.Loop() {
				if got := quota.NewChecker(w).Check(quota.Change{Old: &w.Quotas[5], New: &now}); len(got) > 0 {
					b.Fatal(got)
				}
			}
		})
	}
}

// The account of the scheduler, which follows events, and the webhooks find the same quota of pods, whatever the specs
// say.
func TestTheAccountFollowsTheMapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(someNames, rapid.SampledFrom([]string{quota.Root, quota.System, quota.Default}))
		account, last := quota.NewAccount(quota.Config{}, quota.Rules{}), map[string]quota.Spec{}
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			s := someSpec(false).Draw(t, "spec")
			if s.Name = names.Draw(t, "name"); rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
				account.Unset(s.Name)
				delete(last, s.Name)
			} else {
				account.Set(s)
				last[s.Name] = s
			}
		}
		mapping := quota.NewMapping(slices.Collect(maps.Values(last)))
		for range 10 {
			p := quota.PodsOf{
				Namespace: someNamespaces.Draw(t, "namespace"),
				Quota:     rapid.OneOf(rapid.Just(""), names).Draw(t, "named"),
			}
			want, found := mapping.Of(p)
			if got, missing := account.QuotaOf(p); got.Name() != want || missing == found {
				t.Fatalf("%+v in %+v: the account has %s (missing: %v), the mapping %s (found: %v)", p, last,
					got.Name(), missing, want, found)
			}
		}
	})
}
