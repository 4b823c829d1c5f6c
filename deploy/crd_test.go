package deploy_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/testkit"
)

func definitions(t *testing.T) map[string]*apiextensions.CustomResourceDefinition {
	t.Helper()
	all := map[string]*apiextensions.CustomResourceDefinition{}
	for _, doc := range deploy.CRDs() {
		var crd apiextensionsv1.CustomResourceDefinition
		testkit.Check(t, yaml.UnmarshalStrict(doc, &crd))
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		into, s := &apiextensions.CustomResourceDefinition{}, runtime.NewScheme()
		testkit.Check(t, errors.Join(apiextensionsv1.RegisterConversions(s), s.Convert(&crd, into, nil)))
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				into.Status.StoredVersions = []string{v.Name}
			}
		}
		all[crd.Name] = into
	}
	return all
}

// decode reads whole numbers as the API server does.
func decode(text string, into *map[string]any) error {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// The API server's own validation: schemas are structural, expressions compile and cost little.
func TestTheAPIServerAcceptsTheCRDs(t *testing.T) {
	t.Parallel()
	for name, crd := range definitions(t) {
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), crd); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
	}
}

func devices(entries ...string) string {
	return `{spec: {devices: [{` + strings.Join(entries, "}, {") + `}]}}`
}

func TestTheCRDsRefuseWhatNeedsNoOtherObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crd, object string
		want        string // "" for an object that is accepted
	}{
		"a reservation": {
			"reservations.scheduling.koordinator.sh",
			`{spec: {template: {spec: {containers: [{name: c}]}}, owners: [{object: {name: p, namespace: ns}},
			  {controller: {apiVersion: apps/v1, kind: ReplicaSet, name: r, namespace: ns}},
			  {labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}], ttl: 1h30m,
			  allocatePolicy: Restricted, taints: [{key: k, effect: NoSchedule}]}}`, "",
		},
		"a reservation that never expires": {
			"reservations.scheduling.koordinator.sh",
			`{spec: {template: {}, owners: [{labelSelector: {matchLabels: {app: a}}}], ttl: "0"}}`, "",
		},
		"a reservation without owners": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: []}}`,
			"spec.owners in body should have at least 1 items",
		},
		"a reservation for an owner that says nothing": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: [{}]}}`,
			"spec.owners[0] in body should have at least 1 properties",
		},
		"a reservation for every pod": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: [{labelSelector: {}}]}}`,
			"labelSelector must not be empty: it would match every pod of the cluster",
		},
		"a reservation for an object without name": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: [{object: {namespace: a}}]}}`,
			"object must have a uid or a name",
		},
		"a reservation with ttl and expires": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: [{object: {name: p}}], ttl: 1h,
			  expires: "2026-01-02T03:04:05Z"}}`, "ttl and expires are mutually exclusive",
		},
		"a reservation with a negative ttl": {
			"reservations.scheduling.koordinator.sh", `{spec: {template: {}, owners: [{object: {name: p}}], ttl: -1h}}`,
			"spec.ttl in body should match",
		},
		"a reservation over running pods of an unknown choice": {
			"reservations.scheduling.koordinator.sh",
			`{spec: {template: {}, owners: [{object: {name: p}}], preAllocationPolicy: {mode: Any}}}`,
			`spec.preAllocationPolicy.mode: Unsupported value: "Any"`,
		},
		"a reservation with an unknown policy": {
			"reservations.scheduling.koordinator.sh",
			`{spec: {template: {}, owners: [{object: {name: p}}], allocatePolicy: Strict}}`,
			"spec.allocatePolicy: Unsupported value: \"Strict\"",
		},
		"a migration job": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {paused: true, ttl: 1h30m, mode: ReservationFirst, podRef: {apiVersion: v1, kind: Pod, namespace: a,
			  name: b, uid: u}, reservationOptions: {reservationRef: {name: r}, template: {metadata: {labels: {k: v}},
			  spec: {owners: []}}, preemptionOptions: {}}, deleteOptions: {gracePeriodSeconds: 0}}}`, "",
		},
		"a migration job without a pod": {
			"podmigrationjobs.scheduling.koordinator.sh", `{spec: {ttl: 5m}}`, "spec.podRef: Required value",
		},
		"a migration job for a pod without namespace": {
			"podmigrationjobs.scheduling.koordinator.sh", `{spec: {podRef: {name: b}}}`,
			"podRef must have namespace and name",
		},
		"a migration job for a workload": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {kind: Deployment, namespace: a, name: b}}}`, "podRef.kind must be Pod",
		},
		"a migration job with a negative ttl": {
			"podmigrationjobs.scheduling.koordinator.sh", `{spec: {podRef: {namespace: a, name: b}, ttl: -5m}}`,
			"spec.ttl in body should match",
		},
		"a migration job with a ttl of a million years": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, ttl: 9999999999h}}`, "must be a Go duration that fits 64 bits",
		},
		"a migration job of an unknown mode": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, mode: Delete}}`, "spec.mode: Unsupported value: \"Delete\"",
		},
		"a migration job that reserves nothing and names room": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, mode: EvictDirectly, reservationOptions: {}}}`,
			"reservationOptions must not be set with mode EvictDirectly",
		},
		"a migration job with a Reservation without name": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, reservationOptions: {reservationRef: {uid: u}}}}`,
			"reservationRef must have a name",
		},
		"a migration job that evicts without effect": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, deleteOptions: {dryRun: [All]}}}`,
			"deleteOptions.dryRun must be empty: no pod would be evicted",
		},
		"a migration job with a negative grace period": {
			"podmigrationjobs.scheduling.koordinator.sh",
			`{spec: {podRef: {namespace: a, name: b}, deleteOptions: {gracePeriodSeconds: -1}}}`,
			"deleteOptions.gracePeriodSeconds must be 0 or more",
		},
		"a question about a pod": {
			"scheduleexplanations.scheduling.koordinator.sh",
			`{spec: {questionObjectKey: team-a/web-0.x, ttl: "0"}, status: {schedulable: false,
			  lastUpdateTime: "2026-01-02T03:04:05Z", detailedExplanation: [{scheduleExplanation: {nodeFailedDetails:
			  [{failedPlugin: P, reason: r, failedNodes: [n0]}]}}]}}`, "",
		},
		"a question about no pod": {
			"scheduleexplanations.scheduling.koordinator.sh", `{spec: {ttl: 1h}}`,
			"spec.questionObjectKey: Required value",
		},
		"a question about a pod without namespace": {
			"scheduleexplanations.scheduling.koordinator.sh", `{spec: {questionObjectKey: web-0}}`,
			"must be NAMESPACE/NAME of one pod or one gang",
		},
		"a question about two pods": {
			"scheduleexplanations.scheduling.koordinator.sh", `{spec: {questionObjectKey: "a/b,a/c"}}`,
			"must be NAMESPACE/NAME of one pod or one gang",
		},
		"a question about a pod that does not exist": {
			"scheduleexplanations.scheduling.koordinator.sh",
			`{spec: {questionObjectKey: a/b, questionObjectTemplate: {spec: {}}}}`,
			"questionObjectTemplate must not be set",
		},
		"a question with a negative ttl": {
			"scheduleexplanations.scheduling.koordinator.sh", `{spec: {questionObjectKey: a/b, ttl: -1h}}`,
			"spec.ttl in body should match",
		},
		"a question with a ttl of a million years": {
			"scheduleexplanations.scheduling.koordinator.sh", `{spec: {questionObjectKey: a/b, ttl: 9999999999h}}`,
			"must be a Go duration that fits 64 bits",
		},
		"a metric as Koordinator's agent writes it": {
			"nodemetrics.slo.koordinator.sh",
			`{spec: {metricCollectPolicy: {aggregateDurationSeconds: 300, reportIntervalSeconds: 60,
			  nodeAggregatePolicy: {durations: [5m0s, 10m0s]}, nodeMemoryCollectPolicy: usageWithoutPageCache}},
			  status: {nodeMetric: {nodeUsage: {resources: {cpu: 1, memory: "2"},
			  devices: [{type: gpu, id: a, minor: 0, health: false, resources: {x: 1}}]},
			  aggregatedNodeUsages: [{duration: 5m0s, usage: {p95: {resources: {cpu: 100m}}}}]},
			  podsMetric: [{name: a, namespace: b, priority: koord-prod, qos: LS, extensions: {any: {a: 1}}}]}}`, "",
		},
		"a metric that is averaged over no time": {
			"nodemetrics.slo.koordinator.sh", `{spec: {metricCollectPolicy: {aggregateDurationSeconds: 0}}}`,
			"spec.metricCollectPolicy.aggregateDurationSeconds: Invalid value",
		},
		"a metric that is reported before it is collected": {
			"nodemetrics.slo.koordinator.sh", `{spec: {metricCollectPolicy: {reportIntervalSeconds: -60}}}`,
			"spec.metricCollectPolicy.reportIntervalSeconds: Invalid value",
		},
		"a metric over a negative time": {
			"nodemetrics.slo.koordinator.sh",
			`{spec: {metricCollectPolicy: {nodeAggregatePolicy: {durations: [-5m]}}}}`,
			"spec.metricCollectPolicy.nodeAggregatePolicy.durations[0] in body should match",
		},
		"a metric of memory that is not known": {
			"nodemetrics.slo.koordinator.sh",
			`{spec: {metricCollectPolicy: {nodeMemoryCollectPolicy: rss}}}`,
			"spec.metricCollectPolicy.nodeMemoryCollectPolicy: Unsupported value: \"rss\"",
		},
		"a NodeSLO of Koordinator": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65,
			  memoryEvictThresholdPercent: 70, memoryEvictLowerPercent: 68, cpuSuppressPolicy: cfsQuota},
			  resourceQOSStrategy: {beClass: {cpuQOS: {enable: true}, memoryQOS: {wmarkRatio: 95}}},
			  cpuBurstStrategy: {policy: auto}, systemStrategy: {watermarkScaleFactor: 150}, extensions: {x: {y: 1}},
			  hostApplications: [{name: nginx, priority: koord-prod, qos: LS,
			  cgroupPath: {base: CgroupRoot, parentDir: host, relativePath: nginx/}}]}}`, "",
		},
		"a NodeSLO that suppresses above the whole node": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {resourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: 101}}}`,
			"spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: Invalid value",
		},
		"a NodeSLO with a negative threshold": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {resourceUsedThresholdWithBE: {memoryEvictThresholdPercent: -1}}}`,
			"spec.resourceUsedThresholdWithBE.memoryEvictThresholdPercent: Invalid value",
		},
		"a NodeSLO whose percentage is a text": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {resourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: "65%"}}}`,
			"spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: Invalid value: \"string\"",
		},
		"a NodeSLO that evicts down to more than it evicts from": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {resourceUsedThresholdWithBE: {memoryEvictThresholdPercent: 70, memoryEvictLowerPercent: 70}}}`,
			"memoryEvictLowerPercent must be less than memoryEvictThresholdPercent",
		},
		"a NodeSLO of an unknown policy": {
			"nodeslos.slo.koordinator.sh", `{spec: {resourceUsedThresholdWithBE: {cpuSuppressPolicy: cpuSet}}}`,
			"spec.resourceUsedThresholdWithBE.cpuSuppressPolicy: Unsupported value: \"cpuSet\"",
		},
		"a NodeSLO with an application outside the cgroup tree": {
			"nodeslos.slo.koordinator.sh",
			`{spec: {hostApplications: [{name: a, cgroupPath: {relativePath: ../../etc}}]}}`,
			"parentDir and relativePath must not contain ..",
		},
		"quantities in every spelling": {
			"elasticquotas.scheduling.sigs.k8s.io",
			`{spec: {min: {cpu: 1, memory: 1.5Gi}, max: {cpu: "2", memory: 2e9, nvidia.com/gpu: 0}}}`, "",
		},
		"no limits at all": {"elasticquotas.scheduling.x-k8s.io", `{spec: {}}`, ""},
		"a min that is not a quantity": {
			"elasticquotas.scheduling.sigs.k8s.io", `{spec: {min: {cpu: many}}}`, "spec.min.cpu in body should match",
		},
		"a min that is a list": {
			"elasticquotas.scheduling.sigs.k8s.io", `{spec: {min: [cpu]}}`, "spec.min in body must be of type object",
		},
		"a gang": {
			"podgroups.scheduling.sigs.k8s.io",
			`{spec: {minMember: 3, minResources: {cpu: 1}, scheduleTimeoutSeconds: 60}, status: {phase: Whatever}}`, "",
		},
		"a gang that says nothing": {"podgroups.scheduling.x-k8s.io", `{spec: {minMember: 0}}`, ""},
		"a minimum that is a string": {
			"podgroups.scheduling.x-k8s.io", `{spec: {minMember: "3"}}`,
			"spec.minMember in body must be of type integer",
		},
		"the layers of a network, as Koordinator has them": {
			"clusternetworktopologies.scheduling.koordinator.sh",
			`{metadata: {name: default}, spec: {networkTopologySpec: [
			  {labelKey: [network.topology.nvidia.com/spine], topologyLayer: SpineLayer},
			  {labelKey: [network.topology.nvidia.com/block], parentTopologyLayer: SpineLayer,
			   topologyLayer: BlockLayer},
			  {parentTopologyLayer: BlockLayer, topologyLayer: NodeTopologyLayer}]}}`, "",
		},
		"a layer twice": {
			"clusternetworktopologies.scheduling.koordinator.sh",
			`{spec: {networkTopologySpec: [{topologyLayer: a}, {topologyLayer: a}]}}`, "Duplicate value",
		},
		"a layer without a name": {
			"clusternetworktopologies.scheduling.koordinator.sh", `{spec: {networkTopologySpec: [{labelKey: [a]}]}}`,
			"spec.networkTopologySpec[0].topologyLayer",
		},
		"the devices of a node": {
			"devices.scheduling.koordinator.sh",
			`{metadata: {name: n}, spec: {devices: [
			  {type: gpu, id: GPU-98583a5c, minor: 0, moduleID: 1, health: true, labels: {a: b}, resources:
			    {koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 15472384Ki,
			     koordinator.sh/gpu-memory-ratio: "100"},
			   topology: {socketID: -1, nodeID: 64, pcieID: "pci0000:3a", busID: "0000:3b:00.0"}, conditions:
			    [{type: Degraded, status: "False", reason: Ecc, message: "",
			      lastTransitionTime: "2026-01-02T03:04:05Z"}]},
			  {type: rdma, id: GPU-98583a5c, minor: 0, resources: {koordinator.sh/rdma: 0, other: "1e9"}, vfGroups:
			    [{labels: {type: general}, vfs: [{minor: -1, busID: "0000:09:00.2"}, {busID: "0000:09:00.3"}]}]}]},
			  status: {allocations: [{type: gpu, entries: [{name: p, namespace: d, uuid: u, minors: [0]}]}]}}`,
			"",
		},
		"two devices with one id, of which readers take the first": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a`, `type: gpu, id: a`), "",
		},
		"a device without an id":  {"devices.scheduling.koordinator.sh", devices(`type: gpu`), "spec.devices[0].id"},
		"a device without a type": {"devices.scheduling.koordinator.sh", devices(`id: a`), "spec.devices[0].type"},
		"a device with an empty id": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: ""`), "spec.devices[0].id",
		},
		"health as a word": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, health: good`), "spec.devices[0].health",
		},
		"health that its condition contradicts": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, health: true, conditions: [{type: Healthy,
			  status: "False", reason: Xid79, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]`),
			"the condition Healthy must not contradict health",
		},
		"a condition that contradicts the default of health": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, conditions: [{type: Healthy,
			  status: "True", reason: Ok, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]`),
			"the condition Healthy must not contradict health",
		},
		"more than a GPU": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, resources: {koordinator.sh/gpu-core: 101}`),
			"must be whole percentages from 0 to 100",
		},
		"a part of a percent": {
			"devices.scheduling.koordinator.sh",
			devices(`type: fpga, id: a, resources: {koordinator.sh/fpga: "1500m"}`),
			"must be whole percentages from 0 to 100",
		},
		"negative memory": {
			"devices.scheduling.koordinator.sh",
			devices(`type: gpu, id: a, resources: {koordinator.sh/gpu-memory: "-4Gi"}`),
			"quantities must not be negative",
		},
		"a negative number": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, resources: {other: -1}`),
			"quantities must not be negative",
		},
		"a NUMA node below -1": {
			"devices.scheduling.koordinator.sh", devices(`type: gpu, id: a, topology: {nodeID: -2}`),
			"spec.devices[0].topology.nodeID",
		},
		"a virtual function without an address": {
			"devices.scheduling.koordinator.sh", devices(`type: rdma, id: a, vfGroups: [{vfs: [{minor: 0}]}]`),
			"spec.devices[0].vfGroups[0].vfs[0].busID",
		},
		"a profile": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, quotaLabels: {a: b}, resourceRatio: "0.9", nodeSelector: {}}}`, "",
		},
		"a profile without a quota": {
			"elasticquotaprofiles.quota.koordinator.sh", `{spec: {nodeSelector: {}}}`, "spec.quotaName",
		},
		"a profile without a selector": {
			"elasticquotaprofiles.quota.koordinator.sh", `{spec: {quotaName: q}}`, "spec.nodeSelector",
		},
		"a ratio that is not a number": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, nodeSelector: {}, resourceRatio: 90%}}`, "spec.resourceRatio",
		},
		"a negative ratio": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, nodeSelector: {}, resourceRatio: "-1"}}`, "spec.resourceRatio",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := definitions(t)[test.crd]
			if crd == nil {
				t.Fatalf("no %s", test.crd)
			}
			var object map[string]any
			testkit.Check(t, decode(test.object, &object))
			properties, err := apiextensions.GetSchemaForVersion(crd, "v1alpha1")
			testkit.Check(t, err)
			validator, _, err := apivalidation.NewSchemaValidator(properties.OpenAPIV3Schema)
			testkit.Check(t, err)
			errs := apivalidation.ValidateCustomResource(nil, object, validator)
			structural, err := schema.NewStructural(properties.OpenAPIV3Schema)
			testkit.Check(t, err)
			defaulting.Default(object, structural)
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
			if rules := cel.NewValidator(structural, true, celconfig.PerCallLimit); rules != nil && len(errs) == 0 {
				errs, _ = rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
			}
			switch got := errs.ToAggregate(); {
			case test.want == "" && got != nil:
				t.Errorf("refused: %v", got)
			case test.want != "" && (got == nil || !strings.Contains(got.Error(), test.want)):
				t.Errorf("got %v, want %q in it", got, test.want)
			}
		})
	}
}
