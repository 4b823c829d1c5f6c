package badinput

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/test/badquota"
)

// quotaFaults are what people and clusters do to quotas beside one bad object.
func quotaFaults() []bad {
	fault := func(name string, try func(a *quotas) string, says ...string) bad {
		return bad{"quota that no webhook saw: " + name, func(t *testing.T) string {
			t.Helper()
			a := unguarded(t)
			answer := try(a)
			a.check()
			return answer
		}, says}
	}
	return []bad{
		fault("a cycle is closed under load", func(a *quotas) string {
			a.chain()
			a.quota("{name: a, labels: {is-parent: 'true', parent: c}, max: {cpu: 30}}")
			return a.says("a", "b", "c")
		},
			`a under "koordinator-root-quota": min {cpu 0}, max {cpu 30000}`,
			`request {cpu 0}, used {cpu 0}`,
			`c under "koordinator-root-quota"`, `runtime {cpu 3000}, request {cpu 3000}, used {cpu 3000}`,
			`a: quota "a": parent "c" is below it; it counts under koordinator-root-quota`,
			`b: quota "b": parent "a" is below it; it counts under koordinator-root-quota`,
			`c: quota "c": parent "b" is below it; it counts under koordinator-root-quota`,
		),
		fault("a cycle is opened again", func(a *quotas) string {
			a.chain()
			a.quota("{name: a, labels: {is-parent: 'true', parent: c}, max: {cpu: 30}}")
			a.quota("{name: a, labels: {is-parent: 'true'}, max: {cpu: 30}}")
			for _, name := range []string{"a", "b", "c"} {
				if problems := a.Problems(name); len(problems) > 0 {
					a.t.Errorf("%s still has problems: %q", name, problems)
				}
			}
			return a.says("a", "c")
		}, `used {cpu 3000}`, `c under "b"`),
		fault("a path of forty quotas", func(a *quotas) string {
			for _, text := range badquota.Deep(40) {
				a.quota(text)
			}
			a.pod("p", "x", "d40", 1, true)
			return a.says("d1", "d40") + a.asks("x", "d40")
		},
			`d1 under "koordinator-root-quota"`, `d40 under "d39"`, `used {cpu 1000}`,
			"cpu: used 1000 + request 1000000000 > runtime 1000",
		),
		fault("requests and limits that overflow together", func(a *quotas) string {
			for _, name := range []string{"a", "b", "c"} {
				a.quota("{name: " + name + ", max: {memory: 8191Pi}}")
				a.pod(name, "x", name, 0, true, memory("7000Pi"))
			}
			root, _ := a.Report(quota.Root)
			if root.Used["memory"] != 1<<63-1 {
				a.t.Errorf("used %d, want the largest there is", root.Used["memory"])
			}
			a.pod("late", "x", "a", 0, false, memory("1"))
			answer := a.says("a") + a.admit("late").String()
			for _, name := range []string{"a", "b"} {
				a.RemovePod(a.pods[name])
				delete(a.pods, name)
			}
			if root, _ = a.Report(quota.Root); root.Used["memory"] != 7000<<50 {
				a.t.Errorf("used %d after two of three pods are gone", root.Used["memory"])
			}
			return answer
		}, `quota "a"; memory: used 7881299347898368000 + request 1 > runtime`),
		fault("weights that are all zero", func(a *quotas) string {
			for _, name := range []string{"a", "b"} {
				a.quota("{name: " + name + ", min: {cpu: 5}, max: {cpu: 90}, " +
					`annotations: {shared-weight: '{"cpu":0}'}}`)
				a.pod(name, "x", name, 90, false)
			}
			return a.says("a", "b") + a.asks("x", "a")
		}, "runtime {cpu 5000}, request {cpu 90000}", "> runtime 5000"),
		fault("a quota is deleted under its pods and comes back", func(a *quotas) string {
			const text = "{name: q, namespace: team, max: {cpu: 20}}"
			a.quota(text)
			a.pod("named", "x", "q", 3, true)
			a.pod("of-namespace", "team", "", 4, true)
			a.unquota(text)
			a.check()
			answer := a.says("q", quota.Default)
			a.quota(text)
			return answer + a.says("q")
		}, "q does not exist", "request {cpu 7000}, used {cpu 7000}", `max {cpu 20000}`),
		fault("a parent is deleted above its quotas", func(a *quotas) string {
			a.chain()
			a.unquota("{name: a}")
			return a.says("a", "b", "c")
		},
			"a does not exist", `b under "koordinator-root-quota"`, "used {cpu 3000}",
			`b: quota "b": parent "a" does not exist; it counts under koordinator-root-quota`,
		),
		fault("a parent comes after its quotas", func(a *quotas) string {
			a.quota("{name: b, labels: {parent: a}, max: {cpu: 20}}")
			before := a.says("b")
			a.quota("{name: a, labels: {is-parent: 'true'}, max: {cpu: 30}}")
			if problems := a.Problems("b"); len(problems) > 0 {
				a.t.Errorf("its parent is there, and its problems are %q", problems)
			}
			return before + a.says("b")
		}, `b: quota "b": parent "a" does not exist`, `b under "a"`),
		fault("a tree is moved under load", func(a *quotas) string {
			a.chain()
			a.quota("{name: other, labels: {is-parent: 'true'}, min: {cpu: 10}, max: {cpu: 50}}")
			a.quota("{name: b, labels: {is-parent: 'true', parent: other}, max: {cpu: 20}}")
			return a.says("a", "other", "b")
		},
			`request {cpu 0}, used {cpu 0}`, `b under "other"`,
			`other under "koordinator-root-quota": min {cpu 10000}, max {cpu 50000}, weight {cpu 50000}, `+
				`effective {cpu 10000}, runtime {cpu 3000}, request {cpu 3000}, used {cpu 3000}`,
		),
		fault("the cluster shrinks below the mins and below what is used", func(a *quotas) string {
			a.short = true
			a.quota("{name: a, min: {cpu: 40}, max: {cpu: 90}}")
			a.quota("{name: b, min: {cpu: 40}, max: {cpu: 90}}")
			a.pod("a", "x", "a", 40, true)
			a.pod("b", "x", "b", 30, true)
			for _, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7"} {
				a.RemoveNode(a.nodes[name])
				delete(a.nodes, name)
				a.check()
			}
			return a.says("a", "b", "bystander") + a.asks("x", "b")
		},
			// 30 CPUs in proportion to 40, 40 and 10; of three equal remainders the one of the first that uses it.
			"effective {cpu 13334}, runtime {cpu 13334}, request {cpu 40000}, used {cpu 40000}",
			"effective {cpu 3333}, runtime {cpu 3333}, request {cpu 12000}, used {cpu 8000}",
			`quota "b"; cpu: used 30000 + request 1000000000 > runtime 13333`,
		),
		fault("a cluster without nodes", func(a *quotas) string {
			a.short = true
			for name, n := range a.nodes {
				a.RemoveNode(n)
				delete(a.nodes, name)
			}
			return a.asks("bystander", "") + a.says("bystander")
		}, "used 8000 + request 1000000000 > runtime 0", "effective {cpu 0}, runtime {cpu 0}"),
		fault("system pods that use more than the nodes have", func(a *quotas) string {
			a.short = true
			a.pod("s", "x", quota.System, 150, true)
			return a.says(quota.Root) + a.asks("bystander", "")
		}, `koordinator-root-quota under "": min {cpu 0`, "> runtime 0"),
		fault("an extra tree that has more than the cluster", func(a *quotas) string {
			a.short = true
			a.quota("{name: t, labels: {is-root: 'true', is-parent: 'true', tree-id: blue}, max: {cpu: 1k}, " +
				`annotations: {total-resource: '{"cpu":"500"}'}}`)
			a.quota("{name: q, labels: {parent: t, tree-id: blue}, max: {cpu: 900}}")
			a.pod("p", "x", "q", 600, false)
			return a.says("q", "bystander")
		}, `q under "t"`, "runtime {cpu 500000}, request {cpu 600000}", "runtime {cpu 0}, request {cpu 12000}"),
		fault("a node that flaps", func(a *quotas) string {
			for range 20 {
				a.node("n9", "NodeStatusUnknown")
				a.now = a.now.Add(4 * time.Minute)
				a.Expire()
				a.node("n9", "")
				a.now = a.now.Add(time.Minute)
				a.Expire()
				if root, _ := a.Report(quota.Root); root.Runtime["cpu"] != 100_000 {
					a.t.Fatalf("the total flaps as well: %d", root.Runtime["cpu"])
				}
			}
			return a.asks("bystander", "")
		}, "> runtime 50000"),
		fault("a node that is not ready for five minutes", func(a *quotas) string {
			a.node("n9", "NodeStatusUnknown")
			a.now = a.now.Add(5*time.Minute - time.Second)
			a.Expire()
			before := a.says(quota.Root)
			a.now = a.now.Add(time.Second)
			a.Expire()
			after := a.says(quota.Root)
			a.check()
			a.node("n9", "")
			if a.says(quota.Root) != before {
				a.t.Errorf("after the node is ready again: %s", a.says(quota.Root))
			}
			return before + after
		}, "runtime {cpu 100000, ", "runtime {cpu 90000, "),
		fault("a weight that cannot be read any more", func(a *quotas) string {
			a.history = true
			a.quota(`{name: q, max: {cpu: 20}, annotations: {shared-weight: '{"cpu":7}'}}`)
			a.quota(`{name: q, max: {cpu: 30}, annotations: {shared-weight: '{"cpu":7'}}`)
			return a.says("q")
		}, "max {cpu 30000}, weight {cpu 7000}", "shared-weight", "byte"),
		fault("V12 pods in a parent", func(a *quotas) string {
			a.chain()
			a.pod("p", "x", "a", 2, true)
			a.pod("late", "x", "a", 26, false)
			return a.says("a", "b") + a.admit("late").String()
		}, "used {cpu 5000}", "used {cpu 3000}", `quota "a"; cpu: used 5000 + request 26000 > runtime 30000`),
		fault("V12 a bound pod is no longer preemptible", func(a *quotas) string {
			a.quota("{name: q, min: {cpu: 2}, max: {cpu: 20}}")
			a.pod("p", "x", "q", 3, true)
			before := a.says("q")
			a.pod("p", "x", "q", 3, true, firm)
			a.pod("late", "x", "q", 1, false, firm)
			return before + a.says("q") + a.admit("late").String()
		},
			"used {cpu 3000}, firm {cpu 0}", "used {cpu 3000}, firm {cpu 3000}",
			`quota "q"; cpu: used 3000 + request 1000 > min 2000`,
		),
		fault("a bound pod moves to another quota", func(a *quotas) string {
			a.chain()
			a.quota("{name: other, max: {cpu: 50}}")
			a.pod("c", "x", "other", 3, true)
			return a.says("c", "other")
		}, `request {cpu 0}, used {cpu 0}`, `request {cpu 3000}, used {cpu 3000}`),
		fault("a pod that names the root", func(a *quotas) string {
			a.pod("p", "x", quota.Root, 3, true)
			if !a.Misses(a.pods["p"]) {
				a.t.Error("the pod is in a quota")
			}
			return a.says(quota.Default)
		}, "request {cpu 3000}, used {cpu 3000}"),
		fault("a default quota with a negative max", func(a *quotas) string {
			a.quota("{name: koordinator-default-quota, max: {cpu: -3}}")
			return a.says(quota.Default) + a.asks("x", "")
		}, "max of cpu is -3000, must not be negative; 0 counts", "used 0 + request 1000000000 > max 0"),
	}
}

// chain is a over b over the leaf c, which has a pod of three CPUs.
func (a *quotas) chain() {
	a.quota("{name: a, labels: {is-parent: 'true'}, max: {cpu: 30}}")
	a.quota("{name: b, labels: {is-parent: 'true', parent: a}, max: {cpu: 20}}")
	a.quota("{name: c, labels: {parent: b}, max: {cpu: 10}}")
	a.pod("c", "x", "c", 3, true)
}

func memory(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(amount)
	}
}

func firm(p *corev1.Pod) { p.Labels[annotation.QuotaPreemptible] = "false" }
