package badinput

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/core/reservation"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// reserve is a Reservation; owners and rest are YAML of its spec.
func reserve(owners, rest string) string {
	return "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, metadata: {name: r}, spec: {owners: [" +
		owners + "], template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 2}, limits: " +
		"{cpu: 2}}}]}}" + rest + "}}"
}

const web = "{labelSelector: {matchLabels: {app: web}}}"

// migrate is a PodMigrationJob; spec is YAML.
func migrate(spec string) string {
	return "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: PodMigrationJob, metadata: {name: m}, " +
		"spec: {" + spec + "}}"
}

const webPod = "podRef: {namespace: default, name: web-0}"

// descheduled hands a configuration to tenon-descheduler, which must not start with it.
func descheduled(text string) func(*testing.T) string {
	return func(t *testing.T) (answer string) {
		t.Helper()
		dir := t.TempDir()
		file := filepath.Join(dir, "descheduler.yaml")
		write(t, file, text)
		unchanged(t, dir, func() {
			c := descheduler.NewCommand()
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetErr(&out)
			c.SetArgs([]string{"--config", file, "--kubeconfig", filepath.Join(dir, "none")})
			err := c.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("it has started")
			}
			answer = err.Error()
		})
		return answer
	}
}

// stays simulates a job that may not move its pod now, returns what it says, and fails the test if any pod has another
// place than without the job.
func stays(world, job string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		before, _ := simulated(t, world)
		r, _ := simulated(t, world+"\n---\n"+job)
		if diff := cmp.Diff(before.Pods, r.Pods); diff != "" {
			t.Errorf("pods have changed (-before +after):\n%s", diff)
		}
		if len(r.Migrations) != 1 || r.Migrations[0].Phase == "Succeeded" {
			t.Fatalf("migrations %+v", r.Migrations)
		}
		for _, room := range r.Reservations {
			if room.Node != "" && r.Migrations[0].Phase == "Failed" {
				t.Errorf("room is left behind: %+v", room)
			}
		}
		text, err := json.Marshal(r.Migrations[0])
		testkit.Check(t, err)
		return strings.ReplaceAll(string(text), `\"`, `"`)
	}
}

// without simulates a Reservation that holds no room, and returns what it says.
func without(manifests string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		r, _ := simulated(t, manifests)
		if len(r.Reservations) != 1 || r.Reservations[0].Node != "" && r.Reservations[0].Phase == "Available" {
			t.Fatalf("reservations %+v", r.Reservations)
		}
		text, err := json.Marshal(r.Reservations[0])
		testkit.Check(t, err)
		return r.Reservations[0].Phase + string(text)
	}
}

// unused hands a Reservation to the scheduler that no webhook saw, which must not let any pod use it.
func unused(manifest string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		text, err := yaml.YAMLToJSON([]byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		r, err := kube.ReadReservation(text)
		if err != nil {
			t.Fatal(err)
		}
		if convert.Reservation(r, "n0").Matches(&reservation.Pod{Labels: map[string]string{"app": "web"}}) {
			t.Error("any pod may use it")
		}
		return "it is for no pod"
	}
}

// migrated is a job that has moved another pod of the Deployment web at a time.
func migrated(at string) string {
	return strings.ReplaceAll(`{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: PodMigrationJob, metadata: `+
		`{name: earlier, annotations: {descheduler.koordinator.sh/passed-arbitration: "true", `+
		`tenon.sh/migration-start: '{"time":"AT","node":"n0","workload":"Deployment default/web"}'}}, `+
		`spec: {podRef: {namespace: default, name: web-7, uid: gone}}, status: {phase: Succeeded, conditions: `+
		`[{type: Eviction, status: "True", reason: EvictComplete, lastProbeTime: "AT", `+
		`lastTransitionTime: "AT"}]}}`+"\n---\n", "AT", at)
}

func serverOf(name, cpus string) string {
	return "{apiVersion: v1, kind: Node, metadata: {name: " + name + ", labels: {kubernetes.io/hostname: " + name +
		"}}, status: {capacity: {cpu: " + cpus + ", memory: 8Gi, pods: 100}}}\n---\n"
}

// replicas is a Deployment web; head goes before its spec, template into its pods' metadata.
func replicas(n, head, template string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, generation: 1}, " + head +
		"spec: {replicas: " + n + ", selector: {matchLabels: {app: web}}, template: {metadata: " +
		"{labels: {app: web" + template + "}}, spec: {containers: " +
		"[{name: c, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}}}}\n---\n"
}

func pdb(name, allowed string) string {
	return "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: " + name + "}, spec: " +
		"{minAvailable: 1, selector: {matchLabels: {app: web}}}, status: {disruptionsAllowed: " + allowed +
		", currentHealthy: 2, desiredHealthy: 1, expectedPods: 2}}\n---\n"
}

func movingCases() []bad {
	room := func(manifest string) func(*testing.T) string { return refused("/validate-reservation", manifest, "") }
	job := func(spec string) func(*testing.T) string {
		return refused("/validate-podmigrationjob", migrate(spec), "")
	}
	two := serverOf("n0", "8") + serverOf("n1", "8")
	limits := func(text string) func(*testing.T) string {
		return descheduled("apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\nprofiles:\n- name: a\n" +
			"  pluginConfig:\n  - name: MigrationController\n    args: " + text + "\n")
	}
	return []bad{
		{
			"reservation: owners that match everything", room(reserve("{labelSelector: {}}", "")),
			[]string{"spec.owners[0].labelSelector", "must not be empty", "every pod of the cluster"},
		},
		{"reservation: no owners", room(reserve("", "")), []string{"spec.owners", "must have at least one entry"}},
		{
			"reservation: an empty owner", room(reserve(web+", {}", "")),
			[]string{"spec.owners[1]", "must have one of object, controller, labelSelector"},
		},
		{
			"reservation: an owner without a name", room(reserve("{object: {namespace: default}}", "")),
			[]string{"spec.owners[0].object", "must have a uid or a name"},
		},
		{
			"reservation: a controller without a kind", room(reserve("{controller: {name: web}}", "")),
			[]string{"spec.owners[0].controller", "must have kind and name"},
		},
		{
			"reservation: a selector that is not one",
			room(reserve("{labelSelector: {matchExpressions: [{key: a, operator: Like}]}}", "")),
			[]string{"spec.owners[0].labelSelector", "Like"},
		},
		{
			"reservation: a negative ttl", room(reserve(web, ", ttl: -1s")),
			[]string{"spec.ttl", "must be 0 or more", "-1s"},
		},
		{
			"reservation: over running pods of an unknown choice",
			room(reserve(web, ", preAllocation: true, preAllocationPolicy: {mode: Any}")),
			[]string{"spec.preAllocationPolicy.mode", `"Any"`, "Default, Cluster"},
		},
		{
			"reservation: a taint without a key", room(reserve(web, ", taints: [{effect: NoSchedule}]")),
			[]string{"spec.taints[0].key", "name part must be non-empty"},
		},
		{
			"reservation: a taint of an unknown effect", room(reserve(web, ", taints: [{key: a, effect: Never}]")),
			[]string{"spec.taints[0].effect", `"Never"`, "NoSchedule, PreferNoSchedule, NoExecute"},
		},
		{
			"reservation: no container",
			room(strings.Replace(reserve(web, ""), "containers: [", "containers: [], x: [", 1)),
			[]string{"spec.template.spec", "containers"},
		},
		{
			"reservation: an unknown QoS class",
			room(strings.Replace(reserve(web, ""), "template: {", "template: {metadata: "+
				"{labels: {koordinator.sh/qosClass: GOLD}}, ", 1)),
			[]string{"spec.template.metadata.labels[koordinator.sh/qosClass]", `"GOLD"`, "LSE, LSR, LS, BE, SYSTEM"},
		},
		{
			"reservation: a node that changes under a template",
			refused("/validate-reservation", reserve(web, ""),
				strings.TrimSuffix(strings.Replace(reserve(web, ""), "cpu: 2", "cpu: 3", 1), "}")+
					", status: {nodeName: n0}}"),
			[]string{"spec.template", "immutable once the reservation is on a node"},
		},
		{
			"reservation: an order that is not a number",
			room(strings.Replace(reserve(web, ""), "{name: r}",
				"{name: r, labels: {scheduling.koordinator.sh/reservation-order: first}}", 1)),
			[]string{"metadata.labels[scheduling.koordinator.sh/reservation-order]", "first"},
		},
		{
			"reservation: restricted resources that are not a list",
			room(strings.Replace(reserve(web, ""), "{name: r}",
				"{name: r, annotations: {scheduling.koordinator.sh/reservation-restricted-options: '{'}}", 1)),
			[]string{"metadata.annotations[scheduling.koordinator.sh/reservation-restricted-options]"},
		},

		{"job: no pod", job("paused: true"), []string{"spec.podRef", "must be set", "namespace and name"}},
		{"job: no namespace", job("podRef: {name: a}"), []string{"spec.podRef.namespace", "must be set"}},
		{"job: no name", job("podRef: {namespace: a}"), []string{"spec.podRef.name", "must be set"}},
		{
			"job: another kind than a pod", job("podRef: {kind: Node, namespace: a, name: a}"),
			[]string{"spec.podRef.kind", `"Node"`, "supported Pod"},
		},
		{
			"job: an unknown mode", job(webPod + ", mode: Fast"),
			[]string{"spec.mode", `"Fast"`, "ReservationFirst, EvictDirectly"},
		},
		{"job: a negative ttl", job(webPod + ", ttl: -5m"), []string{"spec.ttl", "must be 0 or more", "-5m0s"}},
		{
			"job: a room for a pod that is evicted directly",
			job(webPod + ", mode: EvictDirectly, reservationOptions: {reservationRef: {name: r}}"),
			[]string{"spec.reservationOptions", "must not be set with mode EvictDirectly"},
		},
		{
			"job: a room without a name", job(webPod + ", reservationOptions: {reservationRef: {}}"),
			[]string{"spec.reservationOptions.reservationRef.name", "must be set"},
		},
		{
			"job: a room for many", job(webPod + ", reservationOptions: {template: {spec: {allocateOnce: false}}}"),
			[]string{"spec.reservationOptions.template.spec.allocateOnce", "must be true", "for one pod"},
		},
		{
			"job: a room for every pod",
			job(webPod + ", reservationOptions: {template: {spec: {owners: [{labelSelector: {}}]}}}"),
			[]string{"spec.reservationOptions.template.spec.owners[0].labelSelector", "must not be empty"},
		},
		{
			"job: a negative grace period", job(webPod + ", deleteOptions: {gracePeriodSeconds: -1}"),
			[]string{"spec.deleteOptions.gracePeriodSeconds", "must be 0 or more"},
		},
		{
			"job: an eviction that evicts no pod", job(webPod + ", deleteOptions: {dryRun: [All]}"),
			[]string{"spec.deleteOptions.dryRun", "must be empty"},
		},
		{
			"job: an unknown propagation", job(webPod + ", deleteOptions: {propagationPolicy: Up}"),
			[]string{"spec.deleteOptions.propagationPolicy", `"Up"`, "Orphan, Background, Foreground"},
		},
		{
			"job: becomes one for another pod",
			refused("/validate-podmigrationjob", migrate("podRef: {namespace: a, name: b}"), migrate(webPod)),
			[]string{"spec.podRef", "immutable", "create another job"},
		},
		{
			"job: becomes one of another mode",
			refused("/validate-podmigrationjob", migrate(webPod+", mode: EvictDirectly"),
				migrate(webPod+", mode: ReservationFirst")),
			[]string{"spec.mode", "immutable"},
		},

		{
			"descheduler: a misspelt limit", limits("{evictBurts: 1}"),
			[]string{"descheduler.yaml:7", "evictBurts", "unknown field", `did you mean "evictBurst"`},
		},
		{
			"descheduler: a negative limit", limits("{maxMigratingPerNode: -1}"),
			[]string{"maxMigratingPerNode", "-1 is not allowed", "a number from 0 on"},
		},
		{
			"descheduler: a percentage above all", limits("{maxUnavailablePerWorkload: 101%}"),
			[]string{"maxUnavailablePerWorkload", `"101%" is not allowed`, "from 1% to 100%"},
		},
		{
			"descheduler: a check that cannot be skipped", limits("{skipEvictionGates: [PDB]}"),
			[]string{"skipEvictionGates", `"PDB" is not allowed`, "MaxUnavailablePerWorkload"},
		},
		{
			"descheduler: a rate of nothing", limits("{evictQPS: 0}"),
			[]string{"evictQPS", `"0" is not allowed`, "a number per second from 0.0001"},
		},

		{
			"fault: a budget of zero", stays(two+replicas("2", "", "")+pdb("a", "0"), migrate(webPod)),
			[]string{`"phase":"Pending"`, "PDBViolation", "allows 0 disruptions"},
		},
		{
			"fault: two budgets for a pod",
			stays(two+replicas("2", "", "")+pdb("a", "1")+pdb("b", "1"), migrate(webPod)),
			[]string{"PDBViolation"},
		},
		{
			"fault: the only replica", stays(two+replicas("1", "", ""), migrate(webPod)),
			[]string{`"phase":"Failed"`, "ExpectedReplicas"},
		},
		{
			"fault: a rollout",
			stays(two+replicas("2", "status: {observedGeneration: 1, replicas: 3, updatedReplicas: 1}, ", ""),
				migrate(webPod)),
			[]string{`"phase":"Pending"`, "RolloutInProgress"},
		},
		{
			"fault: a scale-down",
			stays(two+replicas("2", "status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, "+
				"readyReplicas: 3}, ", ""), migrate(webPod)),
			[]string{`"phase":"Pending"`, "ScalingDown"},
		},
		{
			"fault: no other node has room",
			stays(serverOf("n0", "8")+serverOf("n1", "1")+replicas("2", "", ""), migrate(webPod)),
			[]string{`"phase":"Running"`, "Unschedulable"},
		},
		{
			"fault: a pod that is gone", stays(two, migrate(webPod)), []string{`"phase":"Failed"`, "MissingPod"},
		},
		{
			"fault: a pod of another UID",
			stays(two+replicas("2", "", ""), migrate("podRef: {namespace: default, name: web-0, uid: other}")),
			[]string{`"phase":"Failed"`, "MissingPod"},
		},
		{
			"fault: webhook away: a reservation whose owners match everything",
			unused(reserve("{labelSelector: {}}", "")),
			[]string{"for no pod"},
		},
		{
			"fault: webhook away: a reservation with an empty owner", unused(reserve("{}", "")),
			[]string{"for no pod"},
		},
		{
			"fault: clock skew: an eviction that is still to come",
			stays(two+replicas("2", "", "")+migrated("2099-01-01T00:00:00Z"), migrate(webPod)),
			[]string{`"phase":"Pending"`, "CapWorkload", "until 2099-01-01T00:05:00Z"},
		},
		{
			"fault: a room that does not exist",
			stays(two+replicas("2", "", ""), migrate(webPod+", reservationOptions: {reservationRef: {name: r}}")),
			[]string{`"phase":"Failed"`, "MissingReservation"},
		},
		{
			"fault: a room that has expired",
			without(two + strings.Replace(reserve(web, ", ttl: 1h"), "name: r}",
				`name: r, creationTimestamp: "1999-01-01T00:00:00Z"}`, 1)),
			[]string{"Failed", "expired"},
		},
		{
			"fault: a reservation on a node that goes",
			without(two + strings.TrimSuffix(reserve(web, ""), "}") + ", status: {phase: Available, nodeName: gone}}"),
			[]string{"Failed", "gone"},
		},
		{
			"fault: the quota of the reservation is full",
			without(serverOf("n0", "8") + "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, " +
				"metadata: {name: q, namespace: default}, spec: {min: {cpu: 1}, max: {cpu: 1}}}\n---\n" +
				strings.Replace(reserve(web, ""), "template: {", "template: {metadata: {labels: "+
					"{quota.scheduling.koordinator.sh/name: q}}, ", 1)),
			[]string{"Pending", "QuotaExceeded"},
		},
	}
}
