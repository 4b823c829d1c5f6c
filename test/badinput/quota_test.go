package badinput

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/badquota"
)

// quotas are the quotas of a cluster of 100 CPUs as scheduler and manager keep them, with objects that come past the
// webhooks: these are down, or younger than the objects. The quota bystander must not notice.
type quotas struct {
	*kube.Quotas
	t       *testing.T
	now     time.Time
	objects map[string]*v1alpha1.ElasticQuota // by group, namespace and name
	pods    map[string]*corev1.Pod
	nodes   map[string]*corev1.Node

	short   bool // there is less than all mins: the bystander has its part
	history bool // what counts depends on what was there before
}

func unguarded(t *testing.T) *quotas {
	t.Helper()
	a := &quotas{
		t: t, now: time.Unix(1_800_000_000, 0), objects: map[string]*v1alpha1.ElasticQuota{},
		pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
	}
	a.Quotas = kube.NewQuotas(func() time.Time { return a.now })
	for i := range 10 {
		a.node(fmt.Sprint("n", i), "")
	}
	a.quota("{name: bystander, namespace: bystander, min: {cpu: 10}, max: {cpu: 50}}")
	a.pod("bystander-0", "bystander", "", 8, true)
	a.pod("bystander-1", "bystander", "", 4, false)
	return a
}

// node puts a node of ten CPUs that is ready, or not ready since now for a reason.
func (a *quotas) node(name, reason string) {
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(a.now),
	}
	if reason != "" {
		ready.Status, ready.Reason = corev1.ConditionUnknown, reason
	}
	a.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{ready}, Allocatable: testobject.List("cpu", "10", "memory", "10Gi"),
		},
	}
	a.PutNode(a.nodes[name])
}

// read is what informers make of an object.
func (a *quotas) read(text string) (q *v1alpha1.ElasticQuota, key string) {
	a.t.Helper()
	o, err := badquota.Object(text)
	testkit.Check(a.t, err)
	raw, err := json.Marshal(o)
	testkit.Check(a.t, err)
	if q, _ = kube.ReadQuota(raw); q == nil {
		a.t.Fatalf("%s is not read", text)
	}
	return q, q.GroupVersionKind().Group + "/" + q.Namespace + "/" + q.Name
}

func (a *quotas) quota(text string) {
	a.t.Helper()
	q, key := a.read(text)
	q.CreationTimestamp = metav1.Unix(int64(len(a.objects)), 0)
	if was := a.objects[key]; was != nil {
		q.CreationTimestamp = was.CreationTimestamp
	}
	a.objects[key] = q
	a.PutQuota(q)
}

func (a *quotas) unquota(text string) {
	a.t.Helper()
	_, key := a.read(text)
	if was := a.objects[key]; was != nil {
		delete(a.objects, key)
		a.RemoveQuota(was)
	}
}

// pod puts a pod of so many CPUs that names a quota, or none.
func (a *quotas) pod(name, namespace, quotaName string, cpus int64, bound bool, change ...func(*corev1.Pod)) {
	p := testobject.Pod(namespace+"/"+name, testobject.Label(annotation.QuotaName, quotaName),
		testobject.Requests("cpu", fmt.Sprint(cpus)))
	if bound {
		p.Spec.NodeName = "n0"
	}
	for _, f := range change {
		f(p)
	}
	a.pods[name] = p
	a.PutPod(p)
}

// says describes quotas as they count, with what is wrong about them.
func (a *quotas) says(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		r, known := a.Report(name)
		if !known {
			fmt.Fprintf(&out, "%s does not exist\n", name)
			continue
		}
		fmt.Fprintf(&out, "%s under %q: min %s, max %s, weight %s, effective %s, ", name, r.Parent, list(r.Min),
			list(r.Max), list(r.Weight), list(r.EffectiveMin))
		fmt.Fprintf(&out, "runtime %s, request %s, used %s, firm %s\n", list(r.Runtime), list(r.Request),
			list(r.Used), list(r.NonPreemptibleUsed))
		for _, problem := range a.Problems(name) {
			fmt.Fprintf(&out, "%s: %s\n", name, problem)
		}
	}
	return out.String()
}

// list writes amounts as {cpu 1000}.
func list(amounts amount.List) string {
	var words []string
	for _, dimension := range slices.Sorted(maps.Keys(amounts)) {
		words = append(words, fmt.Sprint(dimension, " ", amounts[dimension]))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// asks is what the condition of a pod says that no quota can admit.
func (a *quotas) asks(namespace, quotaName string) string {
	a.pod("huge", namespace, quotaName, 1_000_000, false)
	x := a.Reserve("huge")
	a.Read(func(all *quota.Account) { all.Release("huge") })
	a.RemovePod(a.pods["huge"])
	delete(a.pods, "huge")
	if x == nil {
		return "a pod of a million CPUs is admitted\n"
	}
	return x.String() + "\n"
}

// admit returns the limit that refuses a pod, nil for none.
func (a *quotas) admit(uid string) *quota.Excess {
	return kube.Ask(a.Quotas, func(all *quota.Account) *quota.Excess { return all.Admit(uid) })
}

// check is what holds whatever the objects say.
func (a *quotas) check() {
	a.t.Helper()
	reports := a.Reports()
	shared := map[string]int64{}
	for _, r := range reports {
		for dimension, runtime := range r.Runtime {
			ceiling, limited := r.Max[dimension]
			if runtime < 0 || r.Used[dimension] < 0 || r.Request[dimension] < 0 || limited && runtime > ceiling {
				a.t.Errorf("runtime below 0 or above max: %+v", r)
			}
			if limited && dimension == "cpu" {
				shared[r.Parent] += runtime
			}
		}
	}
	for _, r := range reports {
		if runtime, limited := r.Runtime["cpu"]; limited && shared[r.Name] > runtime {
			a.t.Errorf("%s may use %d milli-CPU, its children %d together", r.Name, runtime, shared[r.Name])
		}
	}
	a.Read(func(all *quota.Account) {
		f := all.Forest()
		shares := f.Shares()
		for _, r := range reports {
			for dimension := range r.Runtime {
				q, d := f.Find(r.Name), f.Dimension(dimension)
				f.Trace(q, d)
				shares.Goal(q, d)
			}
		}
	})
	if r, _ := a.Report("bystander"); r.Used["cpu"] != 8000 || r.Request["cpu"] != 12_000 ||
		!a.short && r.Runtime["cpu"] != 12_000 {
		a.t.Errorf("the bystander notices: %+v", r)
	}
	if x := a.admit("bystander-1"); x != nil && !a.short {
		a.t.Errorf("a pod of the bystander is refused: %v", x)
	}
	if live, restarted := a.hash(), a.restarted().hash(); live != restarted && !a.history {
		a.t.Error("a scheduler that starts now has another account")
	}
}

func (a *quotas) hash() (h uint64) {
	a.Read(func(all *quota.Account) { h = all.Hash() })
	return h
}

// restarted is the account of a process that reads the objects now, in another order.
func (a *quotas) restarted() *quotas {
	b := &quotas{Quotas: kube.NewQuotas(func() time.Time { return a.now })}
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(a.objects))) {
		b.PutQuota(a.objects[key])
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(a.pods))) {
		b.PutPod(a.pods[name])
	}
	for _, n := range a.nodes {
		b.PutNode(n)
	}
	return b
}

// quotaCases are objects about quotas that no webhook saw.
func quotaCases() []bad {
	var cases []bad
	counts := countsInstead()
	changes := badquota.Cases()
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		c := changes[name]
		cases = append(cases, bad{"quota that no webhook saw: " + name, func(t *testing.T) string {
			t.Helper()
			return pastTheWebhook(t, c)
		}, counts[name]})
	}
	return append(cases, quotaFaults()...)
}

// pastTheWebhook lets a change happen that the webhook refuses.
func pastTheWebhook(t *testing.T, c badquota.Case) string {
	t.Helper()
	a := unguarded(t)
	names := map[string]bool{}
	for _, text := range append(slices.Clone(c.World), c.Object) {
		q, _ := a.read(text)
		names[q.Name] = true
	}
	for _, text := range c.World {
		a.quota(text)
	}
	for i, pod := range c.Pods {
		namespace, quotaName, _ := strings.Cut(pod, "/")
		a.pod(fmt.Sprint("pod-", i), namespace, quotaName, 1, true)
	}
	a.check()
	if c.Operation == badquota.Delete {
		names[quota.Default] = true
		a.unquota(c.Object)
	} else {
		a.quota(c.Object)
	}
	a.check()
	q, _ := a.read(c.Object)
	answer := a.says(slices.Sorted(maps.Keys(names))...) + a.asks("bystander", q.Name)
	a.Read(func(all *quota.Account) {
		path, _ := all.QuotaOf(quota.PodsOf{Namespace: "x"})
		answer += "pods of namespace x are in " + path.Name()
	})
	a.check()
	return answer
}

// countsInstead says what counts in place of what breaks a rule, by the names of badquota.Cases.
func countsInstead() map[string][]string {
	const (
		root  = `q under "koordinator-root-quota": `
		plain = root + "min {cpu 0}, max {cpu 1000}, weight {cpu 1000}"
		full  = `quota "q"; cpu: used 0 + request 1000000000 > runtime 1000`
		gone  = "q does not exist"
		rest  = `koordinator-default-quota under "": min {}, max {}`
	)
	// unread is a label or annotation that says nothing, with the reason.
	unread := func(key, why string) []string {
		return []string{plain, full, "q: ElasticQuota/n/q: quota.scheduling.koordinator.sh/" + key + ": " + why}
	}
	replaced := func(problem string) []string { return []string{plain, full, `q: quota "q": ` + problem} }
	word := func(key, value string) []string {
		return unread(key, fmt.Sprintf("Unsupported value %q: supported true, false", value))
	}
	return map[string][]string{
		"V1 a negative min": replaced("min of cpu is -1000, must not be negative; 0 counts"),
		"V1 a negative max": {
			root + "min {cpu 0}, max {cpu 0}", `q: quota "q": max of cpu is -1000, must not be negative; 0 counts`,
			"> runtime 0",
		},
		"V1 a negative weight":         unread("shared-weight", "byte 7: cpu: must not be negative"),
		"V1 a negative total":          unread("total-resource", "byte 7: cpu: must not be negative"),
		"V1 a weight that is cut off":  unread("shared-weight", "byte 8: unexpected end of JSON input"),
		"V1 a weight that is a number": unread("shared-weight", "byte 2: want an object, got number"),
		"V1 a weight that is a word":   unread("shared-weight", "byte 7: cpu: quantities must match"),
		"V1 unschedulable resources that are a list": unread("unschedulable-resource",
			"byte 1: want an object, got array"),
		"V1 an admission that is text":    unread("admission", "byte 1: invalid character 'y'"),
		"V1 namespaces that are not JSON": unread("namespaces", "byte 1: invalid character 'a'"),
		"V1 a namespace in capitals":      unread("namespaces", `byte 0: [0]: Invalid value "A"`),
		"V1 strict keys that are no list": unread("max-strict-check-resource-keys",
			"byte 1: invalid character 'c'"),
		"V1 a resource key with a space":         unread("resource-keys", `byte 0: [0]: Invalid value "a b"`),
		"V1 is-parent: yes":                      word("is-parent", "yes"),
		"V1 allow-lent-resource: False":          word("allow-lent-resource", "False"),
		"V1 is-root: 1":                          word("is-root", "1"),
		"V1 ignore-default-tree without a value": word("ignore-default-tree", ""),
		"V1 allow-force-update: TRUE":            word("allow-force-update", "TRUE"),
		// The API server keeps most of these out by the schema.
		"V1 a min that is a word": {plain, full, "spec.min: byte 7: cpu: quantities must match"},
		"V1 a min that takes seconds to read": {
			plain, full, `spec.min: byte 7: cpu: quantity "1e-9999999" is out of range`,
		},
		"V1 a max that is a list": {
			root + "min {}, max {}", "a pod of a million CPUs is admitted",
			"spec.max: byte 1: want an object, got array",
		},
		"V2 min above max": {
			root + "min {cpu 3000}, max {cpu 3000}, weight {cpu 3000}, effective {cpu 3000}",
			`q: quota "q": min of cpu is 5000, must not exceed max; max counts`,
		},
		"V2 min without max":         replaced("min of memory is 1073741824 without a max; it is ignored"),
		"V3 no such parent":          replaced(`parent "p" does not exist; it counts under koordinator-root-quota`),
		"V3 a parent that is a leaf": {`q under "p": min {cpu 0}, max {cpu 1000}`, full},
		"V4 a parent becomes a leaf": {`a under "p"`, `quota "p"; cpu: used 0 + request 1000000000 > runtime 88000`},
		"V4 a leaf with pods becomes a parent": {
			"request {cpu 2000}, used {cpu 2000}", `quota "q"; cpu: used 2000 + request 1000000000 > runtime 1000`,
		},
		"V4 a leaf with the pods of a listed namespace becomes a parent": {
			"request {cpu 1000}, used {cpu 1000}", "pods of namespace x are in q",
		},
		// 25 CPUs in proportion to 15 and 11.
		"V5 children with more min than their parent": {
			"effective {cpu 14423, memory 10737418240}", "effective {cpu 10577, memory 16106127360}",
		},
		"V5 a parent with less min than its children": {"effective {cpu 15000, memory 9663676416}"},
		"V6 the tree changes":                         {plain, full},
		"V6 another tree than the parent's":           {`a under "p"`, `quota "a"; cpu: used 0 + request`},
		"V7 a child without a resource of its parent": {`a under "p": min {cpu 0}, max {cpu 50000}`},
		"V7 a child with a min that its parent lacks": {`a under "p": min {cpu 0}, max {cpu 9000}`},
		"V8 max below used":                           {root + "min {nvidia.com/gpu 0}, max {nvidia.com/gpu 5}"},
		"V9 a parent with children": {
			"p does not exist", `a under "koordinator-root-quota": min {cpu 15000`,
			`a: quota "a": parent "p" does not exist; it counts under koordinator-root-quota`,
		},
		"V9 a quota with pods that name it":         {gone, rest, "request {cpu 1000}, used {cpu 1000}"},
		"V9 a quota with the pods of its namespace": {gone, rest, "request {cpu 1000}, used {cpu 1000}"},
		"V9 the default quota":                      {rest, "a pod of a million CPUs is admitted"},
		"V10 the name in another namespace": {
			plain, "q: ElasticQuota other/q of scheduling.sigs.k8s.io has the name of an older one; it is ignored",
		},
		"V10 the name in the other group": {
			plain, "q: ElasticQuota n/q of scheduling.x-k8s.io has the name of an older one; it is ignored",
		},
		"V11 a namespace in two lists":                {plain, "pods of namespace x are in a"},
		"V11 a list against the quota of a namespace": {plain, "pods of namespace x are in x"},
		"V11 the only quota of a listed namespace":    {plain, "pods of namespace x are in q"},
		"V13 its own parent": {
			`p under "koordinator-root-quota": min {cpu 25000, memory 26843545600}`,
			`p: quota "p": parent "p" is below it; it counts under koordinator-root-quota`,
		},
		"V13 below its own child": {
			`p under "koordinator-root-quota"`, `c under "koordinator-root-quota"`,
			`p: quota "p": parent "c" is below it; it counts under koordinator-root-quota`,
			`c: quota "c": parent "p" is below it; it counts under koordinator-root-quota`,
		},
		"V13 a path of 17":         {`q under "d16"`, full},
		"V14 a weight without max": replaced("weight of gpu is 1 without a max; it is ignored"),
		"V15 a max of an int64":    {root + "min {memory 0}, max {memory 9223372036854775807}"},
		// 100 GiB in proportion to 8191 PiB and 7 EiB.
		"V15 a min of an int64":     {"effective {memory 57262968164}", "effective {memory 50111214236}"},
		"V15 a weight of an int64":  {full, "weight {cpu 9223372036854775000}"},
		"V16 two roots of a tree":   {`a under ""`, `q under ""`, "> runtime 0"},
		"V16 a root without a tree": {`q under ""`, "> runtime 0"},
		"V17 the root is edited":    {`koordinator-root-quota under "": min {cpu 100000`},
		"V17 the system quota is created": {
			`koordinator-system-quota under "": min {}, max {}`, "a pod of a million CPUs is admitted",
		},
	}
}
