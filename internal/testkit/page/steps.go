package page

import "strings"

// Step is what becomes of the blocks of a page that are not files.
type Step struct {
	// Blocks is the page, and after a blank how the blocks begin. Of several that fit a block the longest counts.
	Blocks string
	Scene  Scene
	// Why is the reason for Unrun and Picture.
	Why string
	// Before is what the page has done in words: it runs first, and its exports remain.
	Before string
	// Command prints a block that is output alone.
	Command string
	// Replace has names of the page, and what they are here, in pairs.
	Replace []string
	// Exit is that of each command, where it is not 0.
	Exit int
	// Roughly compares the first word of each line alone.
	Roughly bool
}

// Scene is where blocks run, each test in its own order.
type Scene string

// Picture is not a command, Unrun not run.
const (
	Picture Scene = "picture"
	Unrun   Scene = "unrun"
)

// Find returns the step of a block.
func Find(b Block) (found Step, ok bool) {
	for _, s := range Steps() {
		if strings.HasPrefix(b.File+" "+strings.TrimSpace(b.Text), s.Blocks) && len(s.Blocks) > len(found.Blocks) {
			found, ok = s, true
		}
	}
	return found, ok
}

// The scenes of test/system, each with a local cluster of its own but Offline, and those of test/e2e/cluster: Installed
// is an installation, Release its life.
const (
	Offline   Scene = "no cluster"
	Demo      Scene = "make up"
	Plain     Scene = "a local cluster"
	Aligned   Scene = "a local cluster whose kubelets choose"
	Moved     Scene = "a local cluster with GPUs of the kubelet"
	Installed Scene = "an installation"
	Release   Scene = "installations, upgrades and the way off"
)

// Scripts that several steps begin with.
const (
	asAdmin = `PORT=$(sed -n 's/.*"scheduler-secure": *\([0-9]*\).*/\1/p' .tenon/ports.json)
export SECURE=https://127.0.0.1:$PORT
export D=http://127.0.0.1:$(sed -n 's/.*"diagnostics": *\([0-9]*\).*/\1/p' .tenon/ports.json)
for key in certificate-authority-data client-certificate-data client-key-data; do
  sed -n "s/.*$key: //p" .tenon/kubeconfig | base64 -d >$key
done
kubectl create serviceaccount guest --dry-run=client -o yaml | kubectl apply -f -`
	twoGangs = `for of in runs:3 train:2; do for i in $(seq ${of#*:}); do gang=${of%:*}
  cpu=1; [ $gang-$i != runs-3 ] || cpu=512
  [ $gang-$i != runs-3 ] || kubectl wait --for=condition=PodScheduled pod/runs-1 pod/runs-2
  min=2; [ $gang != train ] || min=3
  kubectl run $gang-$i --image=app --annotations=gang.scheduling.koordinator.sh/name=$gang \
    --annotations=gang.scheduling.koordinator.sh/min-available=$min \
    --overrides='{"spec":{"containers":[{"name":"'$gang-$i'","image":"app","resources":{
      "requests":{"cpu":"'$cpu'"}}}]}}'
done; done`
	plainPod = "echo '{apiVersion: v1, kind: Pod, metadata: {name: plain}, " +
		"spec: {containers: [{name: app, image: app}]}}' >pods.yaml"
	// An agent learns from a container that the validator of the runtime is off; one that was just patched starts anew.
	newContainer = "kubectl -n tenon-system rollout status daemonset/tenon-agent --timeout=2m\n" +
		"kubectl run after-validator --image=localhost/probe:1 --image-pull-policy=Never\n" +
		"kubectl wait --for=condition=Ready pod/after-validator --timeout=1m\nkubectl delete --now pod/after-validator"
	waitLeft = "kubectl wait --for=delete pod --all -n tenon-system --timeout=2m"
	// The registry in the values of the page does not exist.
	ourValues = "printf 'image: {registry: localhost}\\nscheduler: {resources: {requests: {cpu: 50m}}}\\n" +
		"manager: {resources: {requests: {cpu: 50m}}}\\n' >values.yaml"
)

// Steps returns what becomes of each block that is not a file: of a scene in the order in which they run, of the
// others by page.
func Steps() []Step {
	return []Step{
		{Blocks: "ARCHITECTURE.md ", Scene: Picture, Why: "a picture"},
		{Blocks: "docs/guide/from-descheduler.md ", Scene: Picture, Why: "a drawing"},
		{Blocks: "docs/guide/claims.md claim", Scene: Picture, Why: "a drawing"},
		{Blocks: "docs/guide/claims.md InsufficientClaimDevices", Scene: Picture, Why: "a part of an answer"},
		{Blocks: "docs/guide/claims.md placed", Scene: Picture, Why: "a part of an answer"},
		{Blocks: "docs/guide/nvidia.md driver", Scene: Picture, Why: "a drawing"},
		{Blocks: "docs/guide/protect-latency.md ", Scene: Picture, Why: "a drawing"},
		{Blocks: "docs/guide/batch.md ", Scene: Picture, Why: "a drawing"},
		{Blocks: "docs/guide/cpu.md ", Scene: Picture, Why: "values of annotations"},
		{Blocks: "docs/guide/reservations.md scheduling.", Scene: Picture, Why: "values of annotations"},
		{Blocks: "docs/guide/reservations.md $ kubectl get", Scene: Picture, Why: "a moment"},
		{Blocks: "docs/guide/queue.md ", Scene: Picture, Why: "pods that the page does not show"},
		{Blocks: "docs/guide/how-many-fit.md ", Scene: Picture, Why: "pods that the page does not show"},
		{
			Blocks: "docs/guide/numa-alignment.md scheduling.koordinator.sh/", Scene: Picture,
			Why: "values of annotations",
		},
		{Blocks: "docs/reference/devices.md huawei-", Scene: Picture, Why: "a part of a ConfigMap"},
		{Blocks: "docs/reference/devices.md pluginConfig", Scene: Picture, Why: "a part of a configuration"},
		{Blocks: "docs/guide/quota.md QuotaRevocationPlanned", Scene: Picture, Why: "an Event, two minutes later"},
		{
			Blocks: "docs/guide/explain.md actual", Scene: Picture,
			Why: "a moment: TestOnOneNode of test/system",
		},
		{
			Blocks: "docs/reference/probe.md tenon-agent probe [", Scene: Picture,
			Why: "a synopsis: docs/reference/flags.md has the flags",
		},

		{Blocks: "CONTRIBUTING.md make", Scene: Unrun, Why: "make: .ci/run runs its targets"},
		{
			Blocks: "docs/reference/release.md ", Scene: Unrun,
			Why: "make: the tests of hack/tools/release and of level 6 build images and archives",
		},
		{
			Blocks: "docs/guide/shadow.md ", Scene: Unrun,
			Why: "it waits for another scheduler: test/rights binds the role and runs the verb",
		},
		{Blocks: "docs/guide/isolate.md ", Scene: Unrun, Why: "changes the boot options of a machine"},
		{Blocks: "docs/guide/nvidia.md ", Scene: Unrun, Why: "needs a card"},
		{Blocks: "docs/reference/placement.md ", Scene: Unrun, Why: "a benchmark: minutes"},
		{Blocks: "docs/reference/waiting.md ", Scene: Unrun, Why: "a benchmark: minutes"},
		{Blocks: "docs/reference/performance.md ", Scene: Unrun, Why: "benchmarks: minutes to hours"},
		{
			Blocks: "docs/start/install.md make push", Scene: Unrun,
			Why: "level 6 builds and imports images without make and ctr",
		},
		{Blocks: "docs/start/install.md hack/kind.sh", Scene: Unrun, Why: "kind, which needs a container engine"},
		{Blocks: "docs/start/install.md cat >>/var/lib/rancher", Scene: Unrun, Why: "k3s"},
		{
			Blocks: "docs/guide/run-the-agent.md kubectl drain", Scene: Unrun,
			Why: "systemctl on a node: level 5 takes over from a static kubelet",
		},
		{
			Blocks: "docs/guide/run-the-agent.md tenon-runtime-proxy", Scene: Unrun,
			Why: "systemctl on a node: level 5 installs the proxy",
		},
		{
			Blocks: "docs/guide/explain.md $ tenon explain packet-filter\n✗ actual", Scene: Unrun,
			Why: "a moment: TestOnOneNode of test/system",
		},
		{
			Blocks: "docs/guide/quota.md $ tenon kubectl get events --field-selector=reason=QuotaRevocation\n",
			Scene:  Unrun,
			Why:    "two minutes: TestQuotasHoldWhileSchedulerAndManagerDie has shorter ones",
		},

		{Blocks: "docs/guide/simulate.md $ tenon simulate", Scene: Offline},
		{Blocks: "docs/guide/quota.md $ tenon simulate", Scene: Offline},
		{
			Blocks: "docs/guide/place-by-load.md $ tenon simulate", Scene: Offline,
			Before: "cp 1.yaml node.yaml; cp 2.yaml pod.yaml",
		},
		{
			Blocks: "docs/guide/place-by-load.md kubectl annotate", Scene: Unrun,
			Why: "TestFilter of internal/sched/loadaware has thresholds of a node",
		},
		{
			Blocks: "docs/guide/reservations.md $ tenon simulate", Scene: Offline,
			Before: "cp 1.yaml reservation.yaml; cp 2.yaml web.yaml",
		},
		{
			Blocks: "docs/guide/migrate-pods.md $ tenon simulate", Scene: Offline,
			Before: "cp 1.yaml db.yaml; cp 2.yaml move.yaml",
		},
		{Blocks: "docs/guide/claims.md $ tenon simulate", Scene: Offline},
		{Blocks: "docs/guide/devices.md $ tenon simulate", Scene: Offline, Before: "cp 2.yaml train.yaml"},
		{
			Blocks: "docs/guide/configuration.md $ tenon check", Scene: Offline, Exit: 2,
			Before: "printf 'apiVersion: config.tenon.sh/v1alpha1\\nkind: AgentConfiguration\\n" +
				"resnyc: 30s\\ndeviceExempt: all\\n' >agent.yaml",
		},
		{
			Blocks: "docs/guide/configuration.md tenon check", Scene: Offline,
			Before: "for of in agent scheduler; do cp docs/reference/$of-config.yaml $of.yaml; done; " + ourValues + `
` + plainPod,
		},
		{
			Blocks: "docs/guide/status.md tenon completion", Scene: Offline, Before: "mkdir completion",
			Replace: []string{"/etc/bash_completion.d/", "completion/", "/usr/local/bin/", "completion/"},
		},

		{
			Blocks: "README.md git clone", Scene: Demo,
			Replace: []string{
				"git clone https://github.com/OWNER/tenon && cd tenon\n", "", "make up ", "make up | tee up ",
			},
		},
		{
			Blocks: "README.md Ready in", Scene: Demo, Command: "sed -n '/^Ready/,$p' up",
			Replace: []string{"=~/", "=…/", "…/bin:$PATH", "…"},
		},
		{Blocks: "docs/guide/cpu.md $ tenon topology node/epyc", Scene: Demo},
		{Blocks: "README.md $ tenon explain", Scene: Demo},
		{Blocks: "docs/guide/explain.md $ tenon explain cannot-fit", Scene: Demo},
		{Blocks: "docs/guide/explain.md $ tenon explain\n", Scene: Demo},
		{
			Blocks: "docs/guide/explain.md $ tenon explain packet-filter", Scene: Demo,
			// Which node is the next best depends on the pods that came before.
			Replace: []string{"1769 against 1571 of hgx-h100-0", "…"},
		},
		{Blocks: "docs/guide/devices.md $ tenon topology", Scene: Demo},
		{Blocks: "docs/guide/devices.md $ tenon top gpu", Scene: Demo},
		{Blocks: "docs/guide/devices.md $ tenon explain", Scene: Demo},
		{Blocks: "docs/guide/what-if.md ", Scene: Demo},
		{Blocks: "docs/reference/agent.md PORT=", Scene: Demo, Replace: []string{"NAME", "arm64-1s-0"}},
		{Blocks: "docs/guide/simulate.md tenon simulate --cluster", Scene: Demo, Before: "cp pods.yaml new.yaml"},
		{
			Blocks: "docs/start/from-koordinator.md tenon simulate", Scene: Demo,
			Before:  "mkdir manifests; tenon kubectl run new --image app --dry-run=client -o yaml >manifests/new.yaml",
			Replace: []string{"MANIFESTS", "manifests", "NAME", "cannot-fit"},
		},
		{Blocks: "docs/start/from-volcano.md kubectl label", Scene: Demo, Replace: []string{"NODE", "epyc-2s-1"}},
		{Blocks: "docs/guide/autoscaling.md kubectl taint", Scene: Demo, Replace: []string{"NODE", "epyc-2s-1"}},
		{Blocks: "docs/guide/autoscaling.md kubectl get pods", Scene: Demo},
		{Blocks: "docs/guide/run-the-agent.md kubectl get pods -A", Scene: Demo},
		{Blocks: "docs/guide/move-gpus.md kubectl get pods -A", Scene: Demo},
		{
			Blocks: "docs/guide/move-gpus.md kubectl get devices", Scene: Demo,
			Replace: []string{"NODE\n", "hgx-h100-0\n"},
		},
		{Blocks: "docs/guide/move-gpus.md kubectl run try", Scene: Demo, Replace: []string{"NODE", "hgx-h100-0"}},
		{
			Blocks: "docs/guide/run-the-agent.md kubectl label node", Scene: Demo,
			Replace: []string{"NAME", "arm64-1s-0"},
		},
		{
			Blocks: "docs/reference/agent.md kubectl annotate node", Scene: Demo,
			Replace: []string{"NAME", "epyc-2s-1"},
			Before:  "tenon leave --node epyc-2s-1 --wait 1m",
		},
		{Blocks: "docs/guide/kubeflow.md ", Scene: Demo},
		{Blocks: "docs/guide/ray.md ", Scene: Demo},
		{Blocks: "docs/guide/spark.md ", Scene: Demo},
		{Blocks: "docs/guide/jobset.md ", Scene: Demo},
		{
			// Each of the clusters in turn would take a minute: their machines are built, and the last commands run.
			Blocks: "docs/start/local-cluster.md tenon up", Scene: Demo,
			Before: plainPod,
			Replace: []string{
				"tenon up --list-machines", "tenon up --list-machines",
				"tenon up --machine", "tenon simulate -f pods.yaml --machine", "tenon up ", ": tenon up ",
				"capture.tar.bz2", ".tenon/nodes/arm64-1s-0",
			},
		},

		{
			Blocks: "docs/guide/quota.md $ tenon up", Scene: Plain, // its objects come below
			Replace: []string{
				"$ tenon kubectl apply -f company.yaml\n", "", "$ tenon kubectl apply -f work.yaml\n", "",
			},
		},
		{
			Blocks: "docs/reference/diagnostics.md $ curl -s $D", Scene: Plain, Before: asAdmin,
			Replace: []string{
				"curl -X", "curl -s --cacert certificate-authority-data " +
					"--cert client-certificate-data --key client-key-data -X",
			},
		},
		{
			Blocks: "docs/reference/diagnostics.md $ curl -sk", Scene: Plain,
			Replace: []string{"https://127.0.0.1:10259", "$SECURE"},
		},
		{
			Blocks: "docs/guide/migrate-pods.md $ tenon kubectl apply", Scene: Plain,
			Before: "cp 1.yaml db.yaml; cp 2.yaml move.yaml",
		},
		{Blocks: "docs/guide/migrate-pods.md $ sed", Scene: Plain},
		{Blocks: "docs/guide/migrate-pods.md $ tenon kubectl run", Scene: Plain},
		{
			Blocks: "docs/guide/gang.md $ tenon gang", Scene: Plain,
			Before: "kubectl delete pmj --all; kubectl delete statefulset db; kubectl delete --wait pod alone\n" +
				twoGangs,
		},
		{
			Blocks: "docs/guide/quota.md $ tenon quota\nQUOTA (cpu)             MIN", Scene: Plain,
			// So that all pods of c come before those of d.
			Before: "kubectl delete --wait pod --all; kubectl apply -f company.yaml\n" +
				"sed 's/replicas: 70/replicas: 0/' work.yaml | kubectl apply -f -\n" +
				"kubectl wait --for=jsonpath='{.status.readyReplicas}'=40 deployment/c; kubectl apply -f work.yaml",
		},
		{Blocks: "docs/guide/quota.md $ tenon quota d", Scene: Plain},
		{
			Blocks: "docs/guide/quota.md $ tenon explain pod/d-", Scene: Plain,
			Before: "export WAITS=$(kubectl get pods -l app=d --field-selector=status.phase=Pending -o name | " +
				"tail -n 1)",
			Replace: []string{"$ tenon explain pod/d-5878f95785-58rrm", "$ tenon explain $WAITS"},
		},
		{
			Blocks: "docs/guide/quota.md $ tenon kubectl get pod urgent", Scene: Plain,
			// The node is random.
			Replace: []string{"arm64-1s-0", "…"},
			// What revocation does in two minutes.
			Before: "kubectl scale deployment c --replicas=35\n" +
				"kubectl wait --for=jsonpath='{.status.readyReplicas}'=40 deployment/d\n" +
				"kubectl scale deployment c --replicas=40; kubectl apply -f 3.yaml",
		},
		{Blocks: "docs/guide/quota.md $ tenon explain pod/firm", Scene: Plain, Before: "kubectl apply -f 4.yaml"},
		{
			Blocks: "docs/guide/quota.md $ tenon kubectl apply -f e.yaml", Scene: Plain, Exit: 1,
			Before: "sed '/name: a$/,/^---/!d; s/name: a/name: e/; s/min:.*/min: {cpu: \"50\"}/; " +
				"s/max:.*/max: {cpu: \"50\"}/; /^---/d' company.yaml | " +
				"sed '1i apiVersion: scheduling.sigs.k8s.io/v1alpha1\\nkind: ElasticQuota\\nmetadata:' >e.yaml",
		},
		{
			Blocks: "docs/guide/quota.md $ tenon quota\nQUOTA (cpu)                 MIN", Scene: Plain,
			Before: "kubectl delete pod urgent firm\n" +
				"kubectl apply -f 6.yaml; eventually kubectl get elasticquota arm-pool\n" +
				"kubectl apply -f 7.yaml",
		},

		{Blocks: "docs/guide/numa-alignment.md $ tenon up", Scene: Aligned},
		{Blocks: "docs/guide/numa-alignment.md $ tenon kubectl apply", Scene: Aligned},
		{
			Blocks: "docs/guide/numa-alignment.md $ sed", Scene: Aligned,
			Replace: []string{"fc69", "", `"gen":1`, `"gen":…`},
		},

		{Blocks: "docs/guide/make-room.md $ tenon up", Scene: Aligned, Before: "tenon down --purge"},
		{Blocks: "docs/guide/make-room.md $ tenon", Scene: Aligned},

		{
			Blocks: "docs/guide/move-gpus.md DIR=", Scene: Moved,
			Replace: []string{
				"sleep 20; tenon topology node/$NODE",
				`eventually bash -c 'has=$(tenon topology node/$NODE) &&
					[[ $has == *"(of the kubelet)"* && $has == */own* ]]'`,
			},
		},

		{
			Blocks: "docs/guide/run-the-agent.md tenon doctor", Scene: Installed,
			Replace: []string{"tenon doctor", "tenon doctor || [ $? = 5 ]"},
		},
		{Blocks: "docs/guide/run-the-agent.md tenon explain", Scene: Installed, Replace: []string{"NAME", "lsr"}},
		{Blocks: "docs/guide/move-gpus.md kubectl -n tenon-system rollout", Scene: Installed},
		{
			Blocks: "docs/reference/diagnostics.md $ kubectl -n", Scene: Installed,
			Before: "export AGENT=$(kubectl -n tenon-system get pods -l app.kubernetes.io/name=tenon-agent -o name)",
			Replace: []string{
				// On the stage the agent's port is this machine's own.
				"pod/tenon-agent-x2x7z 10271", "$AGENT 20271:10271", "127.0.0.1:10271", "127.0.0.1:20271",
				`"n0"`, `"here"`, "app", "main", "9b334c81-", "", "v2", "…",
				"kubepods/", "",
				"2026-11-20T10:52:14.937Z", "…", "0-3", "…",
			},
		},
		{
			Blocks: "docs/runbook/", Scene: Installed,
			Before: "export AGENT=$(kubectl -n tenon-system get pods -l app.kubernetes.io/name=tenon-agent -o name)",
			Replace: []string{
				"NODE", "here", "AGENT-POD", "$AGENT", "logs POD --previous", "logs $AGENT",
				"NAME -n NAMESPACE", "lsr -n default", "CODE", "EnforcementFailed",
			},
		},

		{Blocks: "README.md helm install", Scene: Release, Replace: []string{"REGISTRY", "localhost"}},
		{Blocks: "docs/start/install.md tenon check", Scene: Release},
		{
			Blocks: "docs/start/install.md kubectl create", Scene: Release,
			Before: "helm uninstall tenon --namespace tenon-system; kubectl delete namespace tenon-system; " +
				ourValues,
		},
		{Blocks: "docs/guide/upgrade.md helm upgrade", Scene: Release, Before: ourValues},
		{Blocks: "docs/guide/upgrade.md helm history", Scene: Release},
		{Blocks: "docs/start/install.md helm upgrade", Scene: Release, Before: ourValues},
		{Blocks: "docs/guide/run-the-agent.md helm upgrade", Scene: Release, Replace: []string{"TAG", "devel"}},
		{Blocks: "docs/guide/run-the-agent.md helm rollback", Scene: Release},
		{Blocks: "docs/guide/certificates.md kubectl", Scene: Release},
		{
			Blocks: "docs/guide/move-gpus.md kubectl annotate", Scene: Release, // of a node without devices
			Before: `kubectl create -f - <<<'{
apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: here}}'`,
			Replace: []string{"NODE node.tenon", "here node.tenon", "NAMESPACE", "default"},
		},
		{Blocks: "docs/guide/run-the-agent.md tenon leave", Scene: Release, Before: newContainer},
		{Blocks: "docs/guide/run-the-agent.md helm uninstall", Scene: Release},
		{
			Blocks: "docs/guide/run-the-agent.md make images", Scene: Release, Before: waitLeft,
			Replace: []string{"make images", ": make images", "ctr -n", ": ctr -n"},
		},
		{Blocks: "docs/start/install.md tenon leave", Scene: Release, Before: newContainer},
		{Blocks: "docs/start/install.md kubectl apply", Scene: Release, Before: waitLeft},
		{
			Blocks: "docs/guide/upgrade.md kubectl apply", Scene: Release,
			Replace: []string{"-k deploy/manifests", "-k deploy/manifests; kubectl delete -k deploy/manifests"},
		},
		{
			Blocks: "docs/start/from-koordinator.md helm install", Scene: Release,
			// Definitions and programs of the same names in the place of Koordinator's.
			Before: `for of in $(sed -n 's/^  - //p' beside.yaml); do
  kubectl create -f deploy/chart/files/crds/${of#*.}_${of%%.*}.yaml
done
kubectl create namespace koordinator-system
kubectl -n koordinator-system create deployment koord-scheduler --image=koord-scheduler
kubectl -n koordinator-system create deployment koord-descheduler --image=koord-descheduler
kubectl -n koordinator-system create deployment koordlet --image=koordlet --dry-run=client -o json |
  sed 's/"kind": "Deployment"/"kind": "DaemonSet"/; /"replicas"/d; s/"strategy": {}/"updateStrategy": {}/' |
  kubectl create -f -`,
		},
		{Blocks: "docs/start/from-koordinator.md kubectl -n koordinator-system scale", Scene: Release},
		{
			Blocks: "docs/start/from-koordinator.md kubectl -n koordinator-system patch", Scene: Release,
			Replace: []string{
				"tenon doctor --node NODE", "eventually tenon doctor --node here", "NODE", "here",
			},
		},
		{
			Blocks: "docs/start/from-koordinator.md helm upgrade", Scene: Release,
			Replace: []string{
				"--take-ownership\n", "--take-ownership\nhelm uninstall tenon -n tenon-system\n" + waitLeft +
					"\nkubectl -n koordinator-system delete daemonset koordlet",
			},
		},
		{
			Blocks: "docs/start/from-koordinator.md helm get", Scene: Release,
			// A release with an object of each kind that is kept, and one that is deleted.
			Before: `mkdir -p small/templates
echo '{apiVersion: v2, name: koordinator, version: 0.1.0}' >small/Chart.yaml
cat >small/templates/all.yaml <<'END'
apiVersion: v1
kind: Namespace
metadata: {name: kept}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: kept}
value: 1
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: examples.example.com}
spec:
  group: example.com
  names: {kind: Example, plural: examples}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: deleted, namespace: default}
END
helm install koordinator small --namespace default`,
			Replace: []string{
				"NAMESPACE", "default", "name=koordinator\n", `name=koordinator
kubectl get namespace/kept priorityclass/kept crd/examples.example.com
kubectl -n default wait --for=delete configmap/deleted --timeout=1m
if helm status koordinator --namespace default; then exit 1; fi
kubectl delete namespace/kept priorityclass/kept crd/examples.example.com
`,
			},
		}, // the next case installs beside other definitions
	}
}
