package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

func limitRange(namespace, name, limits string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: LimitRange, metadata: {namespace: %s, name: %s}, "+
		"spec: {limits: [{%s}]}}\n---", namespace, name, limits)
}

// storage has a class whose volumes are bound with their pods, and claims of 2 GiB: d0 to d2.
func storage(claims int) string {
	text := "\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, " +
		"provisioner: example.com/p, volumeBindingMode: WaitForFirstConsumer}\n---"
	for i := range claims {
		text += fmt.Sprintf("\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: d%d, namespace: a}, "+
			"spec: {%s}}\n---", i, claimSpec)
	}
	return text
}

const claimSpec = "accessModes: [ReadWriteOnce], storageClassName: late, resources: {requests: {storage: 2Gi}}"

// withClaim is a volume of a claim.
func withClaim(name string) string {
	return "volumes: [{name: v, persistentVolumeClaim: {claimName: " + name + "}}], "
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
		"a claim that is too large": {
			limitRange("a", "s", "type: PersistentVolumeClaim, max: {storage: 1Gi}") + storage(2) +
				inA("p0", one, "") + inA("p1", one, withClaim("d0")), "Scheduled Unschedulable",
			"PersistentVolumeClaim a/d0: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
		},
		"an ephemeral claim that is too small": {
			limitRange("a", "s", "type: PersistentVolumeClaim, min: {storage: 3Gi}") + storage(0) + inA("p0", one,
				"volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {"+claimSpec+"}}}}], "), "Unschedulable",
			"PersistentVolumeClaim a/p0-v: minimum storage usage per PersistentVolumeClaim is 3Gi, but request is 2Gi",
		},
		"a claim that exists is not created": {
			limitRange("a", "s", "type: PersistentVolumeClaim, max: {storage: 1Gi}") +
				strings.Replace(storage(1), "name: d0", "name: d0, uid: u", 1) + inA("p0", one, withClaim("d0")),
			"Scheduled", "",
		},
		"a quota of claims": {
			resourceQuota("hard: {requests.storage: 4Gi}") +
				strings.Replace(storage(3), "name: d2", "name: d2, uid: u", 1) + inA("p0", one, withClaim("d0")) +
				inA("p1", one, withClaim("d1")) + inA("p2", one, withClaim("d2")), "Scheduled Unschedulable Scheduled",
			"exceeded quota: r, requested: requests.storage=2Gi, used: requests.storage=4Gi",
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
					if says = reason.Message; p.State == Refused && reason.Code != why.AdmissionRefused {
						t.Errorf("pod %s is refused for %s", p.Name, reason.Code)
					}
				}
			}
			if strings.Join(got, " ") != c.want || !strings.Contains(says, c.says) {
				t.Errorf("got %q, %q; want %q, %q", got, says, c.want, c.says)
			}
		})
	}
}
