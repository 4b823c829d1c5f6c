package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stored is a workload as an API server has it, with the UID of its name.
func stored(kind, name, meta, spec string, status ...string) string {
	version := "apps/v1"
	if strings.HasSuffix(kind, "Job") {
		version = "batch/v1"
	}
	return fmt.Sprintf("\napiVersion: %s\nkind: %s\nmetadata: {name: %s, uid: uid-%s%s}\nspec: {%s}\nstatus: {%s}\n---",
		version, kind, name, name, meta, spec, strings.Join(status, ", "))
}

// replicasOf is the spec of a workload of pods with a label.
func replicasOf(n int, more string) string {
	return fmt.Sprintf("replicas: %d, selector: {matchLabels: {app: a}}, %s%s", n, template("requests: {cpu: 1}"), more)
}

func template(resources string) string {
	return "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, resources: {" + resources +
		"}}]}}"
}

func controlledBy(kind, name string) string {
	return fmt.Sprintf(", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: %s, uid: uid-%s, controller: true}]",
		kind, name, name)
}

// member is a pod of an owner.
func member(name, meta, node, status string) string {
	if node != "" {
		node = "nodeName: " + node + ", "
	}
	return fmt.Sprintf("\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, uid: uid-%s, labels: {app: a, "+
		"pod-template-hash: x1}%s}\nspec: {%scontainers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n"+
		"status: {%s}\n---", name, name, meta, node, status)
}

// TestPodsOfTheInputCountForTheirOwners: what kubectl get prints of workloads and their pods has each pod once.
func TestPodsOfTheInputCountForTheirOwners(t *testing.T) {
	const terminates = ", deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [a/b]"
	inSet := controlledBy("ReplicaSet", "web-x1")
	deployment := stored("Deployment", "web", "", replicasOf(2, ""))
	set := stored("ReplicaSet", "web-x1", controlledBy("Deployment", "web"), replicasOf(2, ""))
	pods := member("web-x1-a", inSet, "n0", "phase: Running") + member("web-x1-b", inSet, "n0", "phase: Running")
	both := map[string]string{"web-x1-a": Existing, "web-x1-b": Existing}
	and := func(more ...string) map[string]string {
		all := maps.Clone(both)
		for _, name := range more {
			all[name] = Scheduled
		}
		return all
	}
	batch := "metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}"
	inJob := controlledBy("Job", "once")
	for name, c := range map[string]struct {
		in   string
		want map[string]string
		warn string
	}{
		"a Deployment with all":     {in: deployment + set + pods, want: both},
		"pods before their owners":  {in: pods + set + deployment, want: both},
		"a Deployment and its pods": {in: deployment + pods, want: both},
		"a ReplicaSet and its pods": {in: set + pods, want: both},
		"pods alone":                {in: pods, want: both},
		"a Deployment and its ReplicaSet": {
			in: deployment + set, want: map[string]string{"web-x1-0": Scheduled, "web-x1-1": Scheduled},
		},
		"a Deployment of a manifest, without UIDs": {
			in: strings.Replace(deployment, ", uid: uid-web", "", 1) + set + pods, want: both,
		},
		"a Deployment that has grown": {
			in: stored("Deployment", "web", "", replicasOf(4, "")) + set + pods, want: and("web-x1-0", "web-x1-1"),
		},
		"a ReplicaSet that has grown": {
			in: stored("ReplicaSet", "web-x1", "", replicasOf(3, "")) + pods, want: and("web-x1-0"),
		},
		"names that are taken": {
			in: stored("ReplicaSet", "web-x1", "", replicasOf(3, "")) + pods +
				member("web-x1-0", "", "n0", "phase: Running"),
			want: map[string]string{
				"web-x1-a": Existing, "web-x1-b": Existing, "web-x1-0": Existing, "web-x1-1": Scheduled,
			},
		},
		"a pod that waits": {
			in:   set + member("web-x1-a", inSet, "", "phase: Pending"),
			want: map[string]string{"web-x1-a": Scheduled, "web-x1-0": Scheduled},
		},
		"a pod that has failed, and one that terminates": {
			in: set + member("web-x1-a", inSet, "n0", "phase: Failed") +
				member("web-x1-b", inSet+terminates, "n0", "phase: Running"),
			want: and("web-x1-0", "web-x1-1"),
		},
		"pods of an owner of that name that is gone": {
			in:   set + strings.ReplaceAll(pods, "uid: uid-web-x1,", "uid: uid-other,"),
			want: and("web-x1-0", "web-x1-1"),
		},
		"a Deployment that has shrunk": {
			in: stored("Deployment", "web", "", replicasOf(1, "")) + set + pods, want: both,
			warn: "warning: Deployment default/web: has 2 pods for 1 replica:",
		},
		"a Deployment with another template": {
			in:   strings.ReplaceAll(deployment, "cpu: 1", "cpu: 2") + set + pods,
			want: both, warn: "warning: Deployment default/web: its template is not that of its ReplicaSets",
		},
		"a StatefulSet that lacks its second": {
			in: stored("StatefulSet", "db", "", replicasOf(3, ", serviceName: db")) +
				member("db-0", controlledBy("StatefulSet", "db"), "n0", "phase: Running") +
				member("db-2", controlledBy("StatefulSet", "db"), "n0", "phase: Running"),
			want: map[string]string{"db-0": Existing, "db-1": Scheduled, "db-2": Existing},
		},
		"a DaemonSet that lacks a node": {
			in: plain("n1", 8) + stored("DaemonSet", "ds", "", "selector: {matchLabels: {app: a}}, "+template("")) +
				member("ds-0", controlledBy("DaemonSet", "ds"), "n1", "phase: Running"),
			want: map[string]string{"ds-0": Existing, "ds-1": Scheduled},
		},
		"a Job that is half done": {
			in: stored("Job", "once", "", "parallelism: 3, completions: 5, template: {"+batch+"}") +
				member("a", inJob, "n0", "phase: Succeeded") + member("b", inJob, "n0", "phase: Succeeded") +
				member("c", inJob, "n0", "phase: Succeeded") + member("d", inJob, "n0", "phase: Running"),
			want: map[string]string{"a": Existing, "b": Existing, "c": Existing, "d": Existing, "once-0": Scheduled},
		},
		"a Job of a manifest, without UID": {
			in: strings.Replace(stored("Job", "once", "", "template: {"+batch+"}"), ", uid: uid-once", "", 1) +
				member("d", inJob, "n0", "phase: Running"),
			want: map[string]string{"d": Existing},
		},
		"a Job of whose pods some are gone": {
			in:   stored("Job", "once", "", "parallelism: 3, completions: 5, template: {"+batch+"}", "succeeded: 4"),
			want: map[string]string{"once-0": Scheduled},
		},
		"a Job that has ended": {
			in:   stored("Job", "once", "", "template: {"+batch+"}", "conditions: [{type: Failed, status: \"True\"}]"),
			warn: "Job once has finished and creates no pods",
		},
		"a CronJob that runs": {
			in: stored("CronJob", "cron", "", "schedule: '@daily', jobTemplate: {spec: {template: {"+batch+"}}}") +
				stored("Job", "once", controlledBy("CronJob", "cron"), "template: {"+batch+"}"),
			want: map[string]string{"once-0": Scheduled},
		},
		"a CronJob whose last Job has ended": {
			in: stored("CronJob", "cron", "", "schedule: '@daily', jobTemplate: {spec: {template: {"+batch+"}}}") +
				stored("Job", "once", controlledBy("CronJob", "cron"), "template: {"+batch+"}",
					"conditions: [{type: Complete, status: \"True\"}]"),
			want: map[string]string{"cron-0": Scheduled},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, warn := simulate(t, plain("n0", 8)+c.in, "-")
			got := map[string]string{}
			for _, p := range r.Pods {
				got[p.Name] = p.State
			}
			if len(c.want)+len(got) > 0 && !maps.Equal(got, c.want) {
				t.Errorf("pods (-want +got):\n%s", cmp.Diff(c.want, got))
			}
			if c.warn == "" && warn != "" || !strings.Contains(warn, c.warn) {
				t.Errorf("warnings %q, want %q", warn, c.warn)
			}
		})
	}
}

// TestADumpedReplicaSetKeepsItsUID: its pods name it by its UID, and a migration asks whether it is theirs.
func TestADumpedReplicaSetKeepsItsUID(t *testing.T) {
	inSet := controlledBy("ReplicaSet", "web-x1")
	const ready = "phase: Running, conditions: [{type: Ready, status: \"True\"}]"
	r, _ := simulate(t, plain("n0", 8)+plain("n1", 8)+stored("Deployment", "web", "", replicasOf(2, ""))+
		stored("ReplicaSet", "web-x1", controlledBy("Deployment", "web"), replicasOf(2, ""))+
		member("web-x1-a", inSet, "n0", ready)+member("web-x1-b", inSet, "n0", ready)+
		"\napiVersion: scheduling.koordinator.sh/v1alpha1\nkind: PodMigrationJob\nmetadata: {name: job}\n"+
		"spec: {podRef: {namespace: default, name: web-x1-a}}\n", "-")
	if len(r.Migrations) != 1 || r.Migrations[0].Phase != "Succeeded" || r.Migrations[0].To != "n1" {
		t.Errorf("got %+v, want one that has succeeded, to n1", r.Migrations)
	}
}

// TestTheInputReplacesWhatTheClusterHas: "scale web to 4", and a node that grows.
func TestTheInputReplacesWhatTheClusterHas(t *testing.T) {
	inSet := controlledBy("ReplicaSet", "web-x1")
	cluster := strings.Split(plain("n0", 3)+
		stored("Deployment", "web", "", replicasOf(2, ""))+
		stored("ReplicaSet", "web-x1", controlledBy("Deployment", "web"), replicasOf(2, ""))+
		member("web-x1-a", inSet, "n0", "phase: Running")+member("web-x1-b", inSet, "n0", "phase: Running"), "---")
	var docs []document
	for i, text := range cluster {
		if strings.TrimSpace(text) != "" {
			docs = append(docs, document{origin{file: clusterName, document: i + 1}, []byte(text)})
		}
	}
	scaled := strings.Replace(stored("Deployment", "web", "", replicasOf(4, "")), ", uid: uid-web", "", 1)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"nothing": {"", nil},
		"more replicas than the node has room for": {
			scaled, []string{"web-x1-0 Scheduled", "web-x1-1 Unschedulable"},
		},
		"a node without its status": {
			scaled + "\napiVersion: v1\nkind: Node\nmetadata: {name: n0, labels: {a: b}}\n---",
			[]string{"web-x1-0 Scheduled", "web-x1-1 Unschedulable"},
		},
		"a larger node as well": {scaled + plain("n0", 8), []string{"web-x1-0 Scheduled", "web-x1-1 Scheduled"}},
		"a pod that runs":       {member("web-x1-a", inSet, "", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var warn strings.Builder
			in := Input{Stdin: strings.NewReader(c.in), Warn: &warn, docs: docs}
			if c.in != "" {
				in.Paths = []string{"-"}
			}
			r, err := Run(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range r.Pods {
				got = append(got, p.Name+" "+p.State)
			}
			want := slices.Concat(c.want, []string{"web-x1-a Existing", "web-x1-b Existing"})
			if !slices.Equal(got, want) || warn.String() != "" {
				t.Errorf("got %q, want %q; warnings %q", got, want, warn.String())
			}
		})
	}
}
