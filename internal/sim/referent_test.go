package sim

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/workload"
)

const (
	zones = `
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {zone: a}},
  status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {zone: b}},
  status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}}}
`
	waits = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: x, " +
		"volumeBindingMode: WaitForFirstConsumer}"
	immediate = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: now}, provisioner: x}"
	classes   = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: card}, spec: {selectors: " +
		"[{cel: {expression: \"device.driver == 'x'\"}}]}}"
)

const (
	// late is a class whose volumes exist, and lateClaims are templates of one claim of it.
	late = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: " +
		"kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}"
	lateClaims = "[{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: late, resources: " +
		"{requests: {storage: 1Gi}}}}]"
	mountingTemplate = "{spec: {restartPolicy: Always, containers: [{name: c, image: i, resources: {requests: " +
		"{cpu: 1}}, volumeMounts: [{name: data, mountPath: /data}]}]}}"
	oneVolume = "Waiting: of gang default/l-0 only 1 of 2 members fit: pod default/l-0-1 does not: Volume: 0/2 nodes " +
		"are available: 2 node(s) didn't find available persistent volumes to bind."
	// twoMembers is a LeaderWorkerSet of a leader and a worker.
	twoMembers = "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: %s}, spec: " +
		"{leaderWorkerTemplate: {size: 2, volumeClaimTemplates: " + lateClaims + ", workerTemplate: " +
		mountingTemplate + "}}}"
)

// claimOf is a PersistentVolumeClaim; rest are fields of its spec.
func claimOf(name, rest string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {accessModes: "+
		"[ReadWriteOnce], resources: {requests: {storage: 1Gi}}, %s}}", name, rest)
}

// volumeIn is a PersistentVolume in a zone; rest are fields of its spec.
func volumeIn(name, zone, rest string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: "+
		"1Gi}, "+
		"accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: /x}, nodeAffinity: "+
		"{required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [%s]}]}]}}, %s}}",
		name, zone, rest)
}

func mounting(name, claim string) string {
	return podWith(name, "volumes: [{name: v, persistentVolumeClaim: {claimName: "+claim+"}}]")
}

// podWith is a pod of one CPU; rest are fields of its spec.
func podWith(name, rest string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s, containers: [{name: c, image: i, "+
		"resources: {requests: {cpu: 1}}}]}}", name, rest)
}

func documents(docs ...string) string { return strings.Join(docs, "\n---\n") }

// outcomes are state and node of each pod, or the first reason.
func outcomes(r Result) map[string]string {
	out := map[string]string{}
	for _, p := range r.Pods {
		out[p.Name] = strings.TrimSpace(p.State + " " + p.Node)
		if len(p.Reasons) > 0 {
			out[p.Name] += ": " + p.Reasons[0].Message
		}
	}
	return out
}

func TestPodsWithVolumesAndClaimsAreDecidedOrSaidToBeUndecidable(t *testing.T) {
	const undecided = "Unschedulable: cannot be decided: "
	const card = "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: x, " +
		"nodeName: a, pool: {name: a, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}]}}"
	for name, test := range map[string]struct {
		in   string
		want map[string]string
	}{
		"a claim that is not given does not stop the others": {
			documents(zones, mounting("p", "data"), podWith("q", "nodeSelector: {zone: b}")),
			map[string]string{
				"p": undecided + "PersistentVolumeClaim default/data is not in the input", "q": "Scheduled b",
			},
		},
		"a bound claim goes where its volume is": {
			documents(zones, claimOf("data", "volumeName: v, storageClassName: now"),
				volumeIn("v", "b", "storageClassName: now, claimRef: {namespace: default, name: "+
					"data}"), mounting("p", "data")),
			map[string]string{"p": "Scheduled b"},
		},
		"a bound claim without its volume": {
			documents(zones, claimOf("data", "volumeName: v"), mounting("p", "data")),
			map[string]string{"p": undecided + "PersistentVolume v, to which claim default/data is bound, is not " +
				"in the input"},
		},
		"a claim that waits for its pod takes one of the volumes": {
			documents(zones, waits, claimOf("one", "storageClassName: late"), claimOf("two", "storageClassName: late"),
				volumeIn("va", "a", "storageClassName: late"), volumeIn("vb", "b", "storageClassName: late"),
				mounting("p", "one"), mounting("q", "two"), mounting("r", "one")),
			// r shares the claim of p, so it is on the node of p.
			map[string]string{"p": "Scheduled a", "q": "Scheduled b", "r": "Scheduled a"},
		},
		"a claim of a class that is not given": {
			documents(zones, claimOf("data", "storageClassName: gold"), mounting("p", "data")),
			map[string]string{"p": undecided + "StorageClass gold of claim default/data is not in the input"},
		},
		"a claim that binds before its pod": {
			documents(zones, immediate, claimOf("data", "storageClassName: now"), mounting("p", "data")),
			map[string]string{"p": undecided + "PersistentVolumeClaim default/data is not bound, and its " +
				"StorageClass now " +
				"binds a volume before pods are scheduled: give the claim with spec.volumeName, and that " +
				"PersistentVolume"},
		},
		"a claim without a class": {
			documents(zones, claimOf("data", "volumeMode: Filesystem"), mounting("p", "data")),
			map[string]string{"p": undecided + "PersistentVolumeClaim default/data is not bound and has no " +
				"storage class"},
		},
		"a claim of the default class": {
			documents(zones, strings.Replace(waits, "{name: late}",
				"{name: late, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}", 1),
				claimOf("data", "volumeMode: Filesystem"), volumeIn("v", "b", "storageClassName: "+
					"late"), mounting("p", "data")),
			map[string]string{"p": "Scheduled a"}, // the class makes a volume where the pod goes
		},
		"members of a LeaderWorkerSet have claims of their own": {
			documents(zones, late, volumeIn("va", "a", "storageClassName: late"),
				volumeIn("vb", "b", "storageClassName: late"), fmt.Sprintf(twoMembers, "l")),
			map[string]string{"l-0": "Scheduled a", "l-0-1": "Scheduled b"},
		},
		"members of a LeaderWorkerSet with a volume for one of two": {
			documents(zones, late, volumeIn("va", "a", "storageClassName: late"), fmt.Sprintf(twoMembers, "l")),
			map[string]string{"l-0": oneVolume, "l-0-1": oneVolume},
		},
		"pods of a JobSet share a claim": {
			documents(zones, late, volumeIn("vb", "b", "storageClassName: late"),
				"{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: {"+
					"volumeClaimPolicies: [{templates: "+lateClaims+"}], replicatedJobs: "+
					"[{name: w, template: {spec: {parallelism: 2, "+
					"completions: 2, template: "+mountingTemplate+"}}}]}}"),
			map[string]string{"s-w-0-0": "Scheduled b", "s-w-0-1": "Scheduled b"},
		},
		"members of a StatefulSet have claims of their own": {
			documents(zones, strings.Replace(waits, "provisioner: x", "provisioner: kubernetes.io/no-provisioner", 1),
				volumeIn("va", "b", "storageClassName: late"),
				"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, serviceName: "+
					"s, selector: "+
					"{matchLabels: {app: s}}, template: {metadata: {labels: {app: s}}, spec: {containers: [{name: "+
					"c, image: i}]}}, "+
					"volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], "+
					"storageClassName: late, "+
					"resources: {requests: {storage: 1Gi}}}}]}}"),
			map[string]string{
				"s-0": "Scheduled b",
				"s-1": "Unschedulable: node(s) didn't find available persistent volumes to bind",
			},
		},
		"an ephemeral volume": {
			documents(zones, waits, podWith("p", "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: "+
				"{accessModes: "+
				"[ReadWriteOnce], storageClassName: late, resources: {requests: {storage: 1Gi}}}}}}]")),
			map[string]string{"p": "Scheduled a"},
		},
		"a resource claim that is not given": {
			documents(zones, podWith("p", "resourceClaims: [{name: c, resourceClaimName: "+
				"card}]"), podWith("q", "nodeSelector: {zone: a}")),
			map[string]string{
				"p": undecided + "ResourceClaim default/card is not in the input", "q": "Scheduled a",
			},
		},
		"resource claims of a template": {
			documents(zones, classes,
				"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: x, "+
					"nodeName: b, pool: "+
					"{name: b, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}, {name: d1}]}}",
				"{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t}, spec: {spec: "+
					"{devices: "+
					"{requests: [{name: r, exactly: {deviceClassName: card}}]}}}}",
				"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: shared}, spec: {devices: "+
					"{requests: [{name: r, exactly: {deviceClassName: card}}]}}}",
				podWith("p", "resourceClaims: [{name: c, resourceClaimTemplateName: t}]"),
				podWith("q", "resourceClaims: [{name: c, resourceClaimName: shared}]"),
				podWith("r", "resourceClaims: [{name: c, resourceClaimName: shared}]"),
				podWith("s", "resourceClaims: [{name: c, resourceClaimTemplateName: t}]")),
			map[string]string{
				"p": "Scheduled b", "q": "Scheduled b", "r": "Scheduled b",
				"s": "Unschedulable: cannot allocate all claims: s-c/r requests 1 of class card, of which the node " +
					"has no device",
			},
		},
		"a resource claim of more devices than an allocation has": {
			documents(zones, classes, card,
				"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: huge}, spec: {devices: "+
					"{requests: [{name: r, exactly: {deviceClassName: card, count: 6000000000000000000}}, "+
					"{name: q, exactly: {deviceClassName: card, count: 6000000000000000000}}]}}}",
				podWith("p", "resourceClaims: [{name: c, resourceClaimName: huge}]"),
				podWith("q", "nodeSelector: {zone: a}")),
			map[string]string{
				"p": "Unschedulable: a ResourceClaim requests too many devices: ResourceClaim huge requests at " +
					"least 9223372036854775807 devices: the counts in spec.devices.requests must sum to at most 32",
				"q": "Scheduled a",
			},
		},
		"a resource claim at which a plugin fails": {
			documents(zones, classes, card,
				"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: wrong}, spec: {devices: "+
					"{requests: [{name: r, exactly: {deviceClassName: card, selectors: [{cel: {expression: "+
					`'device.attributes["x"].none == "a"'}}]}}]}}}`,
				podWith("p", "resourceClaims: [{name: c, resourceClaimName: wrong}]"),
				podWith("q", "nodeSelector: {zone: a}")),
			map[string]string{
				"p": undecided + `running "DynamicResources" filter plugin: claim default/wrong: selector #0 on ` +
					"device x/a/d0: CEL runtime error: no such key: none. consider using CEL optional chaining (.? " +
					"followed by orValue()) or guarding the check with has() for optional fields",
				"q": "Scheduled a",
			},
		},
		"a resource claim of a class that is not given": {
			documents(zones,
				"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: card}, spec: {devices: "+
					"{requests: [{name: r, firstAvailable: [{name: x, deviceClassName: card}]}]}}}",
				podWith("p", "resourceClaims: [{name: c, resourceClaimName: card}]")),
			map[string]string{"p": undecided + "DeviceClass card of ResourceClaim default/card is not in the input"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, test.in, "-")
			if diff := cmp.Diff(test.want, outcomes(r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheOverheadOfARuntimeClassCounts(t *testing.T) {
	const class = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata, overhead: " +
		"{podFixed: {cpu: 7500m}}, scheduling: {nodeSelector: {zone: b}}}"
	r, warn := simulate(t, documents(zones, class, podWith("p", "runtimeClassName: "+
		"kata"), podWith("q", "runtimeClassName: none")), "-")
	want := map[string]string{"p": "Unschedulable: Insufficient cpu", "q": "Scheduled a"}
	got := outcomes(r)
	got["p"] = got["p"][:min(len(got["p"]), len(want["p"]))]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(warn, "warning: RuntimeClass none is not in the input") || strings.Contains(warn, "kata") {
		t.Errorf("got the warnings %q", warn)
	}
	r, _ = simulate(t, documents(zones, strings.Replace(class, "7500m", "6", 1), podWith("p", "runtimeClassName: "+
		"kata")), "-")
	if diff := cmp.Diff(map[string]string{"p": "Scheduled b"}, outcomes(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestForeignKindsAreNamedOnceAndSkipped(t *testing.T) {
	in := documents(zones, podWith("p", "nodeSelector: {zone: b}"),
		"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: a}, spec: {}}",
		"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: b}, spec: {}}",
		"{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, metadata: {name: k}}",
		"{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {name: w}}",
		"{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}}",
		"{apiVersion: jobs.example.com/v1, kind: Job, metadata: {name: j}}")
	r, warn := simulate(t, in, "-")
	if diff := cmp.Diff(map[string]string{"p": "Scheduled b"}, outcomes(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const want = "ignored: Job (1), Kustomization (1), Service (1), ServiceMonitor (2), Workload (1): these kinds " +
		"are not read, and neither are pods that their controllers would create\n"
	if warn != want {
		t.Errorf("got the warnings %q, want %q", warn, want)
	}
	_, err := Run(
		t.Context(),
		Input{Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard, Strict: true},
	)
	if err == nil || !strings.Contains(err.Error(), "(ServiceMonitor a): kind: ServiceMonitor "+
		"(monitoring.coreos.com/v1) is not known") {
		t.Errorf("strict: got %v", err)
	}
}

// The amounts and labels that the manager writes from Devices count for quotas and node selectors.
func TestQuotasOfGPUsHaveWhatTheSimulatedDevicesOffer(t *testing.T) {
	for _, resource := range []string{"nvidia.com/gpu", "koordinator.sh/gpu", "koordinator.sh/gpu-core"} {
		amount, one := "{"+resource+": 2}", "1"
		if resource != "nvidia.com/gpu" {
			amount, one = "{"+resource+": 200}", "100"
		}
		limited := func(name string) string {
			ask := "{" + resource + ": " + one + "}"
			if resource == "koordinator.sh/gpu-core" {
				ask = "{koordinator.sh/gpu: 100}"
			}
			return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", labels: " +
				"{quota.scheduling.koordinator.sh/name: q}}, " +
				"spec: {containers: [{name: c, image: i, resources: {requests: " + ask + ", limits: " + ask + "}}]}}"
		}
		r, _ := simulate(
			t,
			documents(cpuNode("n0", 8), deviceOf("n0", twoGPUs), elastic(koordinator, "q", "", amount, amount)+"\n"+
				limited("a"), limited("b"), limited("c")),
			"-",
		)
		if len(r.Quotas) != 1 || r.Quotas[0].Runtime[resource] == "0" || r.Quotas[0].Runtime[resource] == "" {
			t.Errorf("%s: got the quotas %+v", resource, r.Quotas)
		}
		got := outcomes(r)
		if got["a"] != "Scheduled n0" || got["b"] != "Scheduled n0" || !strings.HasPrefix(got["c"], "Unschedulable") {
			t.Errorf("%s: got %v", resource, got)
		}
	}
}

// TestKindsOfTheTableOfSupportAreNeverUnknown: a kind that no component reads is refused with its feature.
func TestKindsOfTheTableOfSupportAreNeverUnknown(t *testing.T) {
	for _, s := range annotation.Supports() {
		for _, key := range s.Keys {
			kind, group, _ := strings.Cut(key, ".")
			if s.Place != annotation.ObjectKind || s.State == annotation.Done {
				continue
			}
			in := fmt.Sprintf("{apiVersion: %s/v1alpha1, kind: %s, metadata: {name: a}}", group, kind)
			_, err := Run(t.Context(), Input{
				Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard, Strict: true,
			})
			if err != nil && workload.Builtin().Find(group, "v1alpha1", kind) != nil {
				continue // its pods are predicted, and only nodes are lacking
			}
			if err == nil || strings.Contains(err.Error(), "is not known") ||
				!strings.Contains(err.Error(), s.Feature) {
				t.Errorf("%s: got %v, want the feature %q", key, err, s.Feature)
			}
		}
	}
}

// TestAPodThatContradictsItsRuntimeClassIsRefused, as the API server's admission does, and no other pod.
func TestAPodThatContradictsItsRuntimeClassIsRefused(t *testing.T) {
	const kata = "runtimeClassName: kata, "
	class := func(name, spec string) string {
		return "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: " + name + "}, handler: kata" + spec +
			"}"
	}
	r, _ := simulate(t, documents(
		zones, class("kata", ", overhead: {podFixed: {cpu: 250m}}, scheduling: {nodeSelector: {zone: b}}"),
		class("runc", ""),
		podWith("another-overhead", kata+"overhead: {cpu: 500m}"),
		podWith("another-resource", kata+"overhead: {memory: 1Mi}"),
		podWith("another-zone", kata+"nodeSelector: {zone: a}"),
		podWith("equal", kata+"overhead: {cpu: '0.25'}, nodeSelector: {zone: b}"),
		podWith("no-overhead", "runtimeClassName: runc, overhead: {cpu: 1}"),
		podWith("one-more", kata+"nodeSelector: {kubernetes.io/os: none}"),
	), "-")
	const overhead = "Refused: spec.overhead: must be absent or that of RuntimeClass "
	want := map[string]string{
		"another-overhead": overhead + "kata, cpu 250m: it is cpu 500m",
		"another-resource": overhead + "kata, cpu 250m: it is memory 1Mi",
		"another-zone": "Refused: spec.nodeSelector[zone]: must be absent or that of RuntimeClass kata, " +
			`"b": it is "a"`,
		"no-overhead": overhead + "runc, none: it is cpu 1",
		"equal":       "Scheduled b",
	}
	got := outcomes(r)
	if !strings.HasPrefix(got["one-more"], "Unschedulable") {
		t.Errorf("one-more: %s", got["one-more"])
	}
	delete(got, "one-more")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
