package sim

import (
	"fmt"
	"strings"
	"testing"
)

func limitRange(namespace, name, limits string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: LimitRange, metadata: {namespace: %s, name: %s}, "+
		"spec: {limits: [{%s}]}}\n---", namespace, name, limits)
}

func resourceQuota(spec string) string {
	return "\n{apiVersion: v1, kind: ResourceQuota, metadata: {name: r, namespace: a}, spec: {" + spec + "}}\n---"
}

// inA is a pod of the namespace a; resources "" are none.
func inA(name, resources, spec string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: a}, spec: {%scontainers: [{"+
		"name: c, image: i, resources: {%s}}]}}\n---", name, spec, resources)
}

// TestLimitRangesAndResourceQuotas has a node of 8 CPUs.
func TestLimitRangesAndResourceQuotas(t *testing.T) {
	const one, two = "requests: {cpu: 1}", "requests: {cpu: 2}"
	defaults := limitRange("a", "d", "type: Container, default: {cpu: 6}, defaultRequest: {cpu: 5}")
	three := resourceQuota("hard: {requests.cpu: 3}")
	for name, c := range map[string]struct {
		in   string
		want string // states of p0, p1…
		says string // the reason of the last
	}{
		"a default that fits": {defaults + inA("p0", "", ""), "Scheduled", ""},
		"a default that counts on nodes": {
			defaults + inA("p0", "", "") + inA("p1", "", ""), "Scheduled Unschedulable", "",
		},
		"what a pod requests is kept": {
			defaults + inA("p0", one, "") + inA("p1", one, ""), "Scheduled Scheduled", "",
		},
		"a LimitRange of another namespace": {
			strings.ReplaceAll(defaults, ": a,", ": b,") + inA("p0", "", "") + inA("p1", "", ""),
			"Scheduled Scheduled", "",
		},
		"the first by name is the default": {
			limitRange("a", "e", "type: Container, defaultRequest: {cpu: 9}") + defaults + inA("p0", "", ""),
			"Scheduled", "",
		},
		"more than the most": {
			limitRange("a", "m", "type: Container, max: {cpu: 1}") + inA("p0", "limits: {cpu: 2}", ""), "Refused",
			"maximum cpu usage per Container is 1, but limit is 2",
		},
		"a quota": {
			three + inA("p0", two, "") + inA("p1", two, ""), "Scheduled Refused",
			"exceeded quota: r, requested: requests.cpu=2, used: requests.cpu=2, limited: requests.cpu=3",
		},
		"one refused pod takes nothing": {
			three + inA("p0", "requests: {cpu: 4}", "") + inA("p1", two, ""), "Refused Scheduled", "",
		},
		"pods that run count": {
			three + inA("p0", two, "nodeName: n0, ") + inA("p1", two, ""), "Existing Refused", "used: requests.cpu=2",
		},
		"pods of another namespace do not": {
			three + strings.Replace(inA("p0", two, "nodeName: n0, "), ": a}", ": b}", 1) + inA("p1", two, ""),
			"Scheduled Existing", "",
		},
		"a quota needs requests": {
			three + inA("p0", "", ""), "Refused", "failed quota: r: must specify requests.cpu for: c",
		},
		"a LimitRange gives them": {
			resourceQuota("hard: {requests.cpu: 5}") + defaults + inA("p0", "", "") + inA("p1", "", ""),
			"Scheduled Refused", "exceeded quota",
		},
		"a quota of pods with a scope": {
			resourceQuota("hard: {pods: 1}, scopes: [BestEffort]") + inA("p0", "", "") + inA("p1", one, "") +
				inA("p2", "", ""), "Scheduled Scheduled Refused", "exceeded quota: r, requested: pods=1",
		},
		"a pod that waits in a cluster is admitted": {
			three + inA("p0", two, "") + strings.Replace(inA("p1", two, ""), "name: p1", "name: p1, uid: u", 1),
			"Refused Scheduled", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, plain("n0", 8)+c.in, "-")
			var got []string
			says := ""
			for _, p := range r.Pods {
				got = append(got, p.State)
				for _, reason := range p.Reasons {
					says = reason.Message
				}
			}
			if strings.Join(got, " ") != c.want || !strings.Contains(says, c.says) {
				t.Errorf("got %q, %q; want %q, %q", got, says, c.want, c.says)
			}
		})
	}
}
