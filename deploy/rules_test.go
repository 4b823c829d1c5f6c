package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/doctor"
)

// inEverySet runs a test on the rendering of each value set.
func inEverySet(t *testing.T, test func(*testing.T, []document)) {
	t.Helper()
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, set(t, name))
		})
	}
}

// as reads an object as its type.
func as[T any](t *testing.T, d document) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.object.Object, into); err != nil {
		t.Fatalf("%s: %v", d.name(), err)
	}
	return into
}

func kinds(docs []document, kind ...string) []document {
	return slices.DeleteFunc(slices.Clone(docs), func(d document) bool {
		return !slices.Contains(kind, d.object.GetKind())
	})
}

func names(docs []document) (all []string) {
	for _, d := range docs {
		all = append(all, d.name())
	}
	return all
}

// template is the pod template of a workload.
type template struct {
	Spec struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

func pods(t *testing.T, docs []document) map[string]*template {
	t.Helper()
	all := map[string]*template{}
	for _, d := range kinds(docs, "Deployment", "DaemonSet") {
		if d.object.GetName() != nvidia {
			all[d.object.GetName()] = as[template](t, d)
		}
	}
	return all
}

// nvidia is the DaemonSet whose container is privileged, so the rules for the others do not hold for it.
const nvidia = "tenon-nvidia"

// The one privileged container is there where it is asked for alone. It has no account, has no network, and runs on
// nodes with cards only.
func TestThePrivilegedReporterHasNoRights(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		i := slices.IndexFunc(docs, func(d document) bool { return d.name() == "DaemonSet tenon-system/"+nvidia })
		if asked := strings.HasSuffix(t.Name(), "/gpu"); i < 0 || !asked {
			if i >= 0 || asked {
				t.Errorf("the reporter is rendered: %t, want %t", i >= 0, asked)
			}
			return
		}
		spec := as[template](t, docs[i]).Spec.Template.Spec
		c := spec.Containers[0]
		if len(spec.Containers) != 1 || spec.ServiceAccountName != "" || *spec.AutomountServiceAccountToken ||
			spec.HostNetwork || spec.HostIPC || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("the reporter has more than it needs: %+v", spec)
		}
		agent := pods(t, docs)["tenon-agent"].Spec.Template.Spec.Containers[0]
		if c.Image != agent.Image || c.Args[0] != "report-nvidia" {
			t.Errorf("the reporter runs %s %v", c.Image, c.Args)
		}
		writable := map[string]bool{}
		for _, m := range c.VolumeMounts {
			writable[m.Name] = !m.ReadOnly
		}
		if diff := cmp.Diff(map[string]bool{"host": false, "out": true}, writable); diff != "" {
			t.Errorf("what the reporter may write (-want +got):\n%s", diff)
		}
		nodes := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		var keys []string
		for _, term := range nodes.NodeSelectorTerms {
			keys = append(keys, term.MatchExpressions[0].Key)
		}
		if diff := cmp.Diff(doctor.ReporterLabels, keys); diff != "" {
			t.Errorf("labels of the reporter's nodes, without those of tenon check cluster (-want +got):\n%s", diff)
		}
		closed := slices.ContainsFunc(kinds(docs, "NetworkPolicy"), func(d document) bool {
			p := as[networkingv1.NetworkPolicy](t, d).Spec
			return d.object.GetName() == nvidia && len(p.PolicyTypes) == 2 && len(p.Ingress)+len(p.Egress) == 0 &&
				p.PodSelector.MatchLabels["app.kubernetes.io/name"] == nvidia
		})
		if !closed {
			t.Error("no NetworkPolicy keeps the reporter to itself")
		}
	})
}

// helpers is the namespace of the pods that the manager creates with scaleHelper.
const helpers = "tenon-scale-helper"

func TestNothingRunsBesideTheComponents(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		for _, d := range docs {
			switch d.object.GetKind() {
			case "Job", "CronJob", "Pod", "Namespace", "Secret":
				if d.object.GetName() != helpers {
					t.Errorf("%s is rendered", d.name())
				}
			}
			for key := range d.object.GetAnnotations() {
				if strings.HasPrefix(key, "helm.sh/hook") {
					t.Errorf("%s is a hook", d.name())
				}
			}
		}
		for name, p := range pods(t, docs) {
			if len(p.Spec.Template.Spec.InitContainers) > 0 {
				t.Errorf("%s has init containers", name)
			}
		}
	})
}

func TestRenderingAsksNoCluster(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("chart/templates/*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`\blookup\b|\bgenCA\b|\brand(Alpha|Ascii|Numeric)`).Find(text); found != nil {
			t.Errorf("%s has %s", file, found)
		}
	}
}

func TestTheNamespaceOfTheReleaseIsKept(t *testing.T) {
	t.Parallel()
	all := render(t, "placement", "--values", "testdata/ha.yaml")
	docs := slices.DeleteFunc(slices.Clone(all), func(d document) bool { return d.object.GetNamespace() == helpers })
	if len(all)-len(docs) != 2 {
		t.Errorf("%d objects are in %s, want a Role and its binding", len(all)-len(docs), helpers)
	}
	for _, d := range docs {
		want := "placement"
		if d.object.GetName() == "tenon-scheduler-authentication-reader" {
			want = "kube-system" // where the API server keeps what it gives to read
		}
		if got := d.object.GetNamespace(); got != "" && got != want {
			t.Errorf("%s, want namespace %s", d.name(), want)
		}
		if strings.Contains(d.text, home) {
			t.Errorf("%s names %s:\n%s", d.name(), home, d.text)
		}
	}
	namespaced := []string{
		"ServiceAccount", "Role", "RoleBinding", "Deployment", "DaemonSet", "Service", "PodDisruptionBudget",
		"NetworkPolicy", "ServiceMonitor",
	}
	for _, kind := range namespaced {
		found := kinds(docs, kind)
		if len(found) == 0 || strings.Contains(fmt.Sprint(names(found)), kind+" tenon") {
			t.Errorf("%d of kind %s, or one without a namespace", len(found), kind)
		}
	}
}

func TestRightsAreNarrow(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		for _, d := range kinds(docs, "ClusterRole", "Role") {
			role := as[rbacv1.ClusterRole](t, d)
			for _, rule := range role.Rules {
				for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
					bad := strings.Contains(word, "*") || slices.Contains([]string{
						"nodes/proxy", "pods/exec", "escalate", "bind", "impersonate",
					}, word)
					// Its own Secrets alone; to create is not to read.
					bad = bad || word == "secrets" && (role.Kind != "Role" || len(rule.ResourceNames) == 0 &&
						!slices.Equal(rule.Verbs, []string{"create"}))
					if bad {
						t.Errorf("%s has %s: %+v", d.name(), word, rule)
					}
				}
			}
		}
	})
}

func TestEachComponentHasOneRole(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		roles := map[string][]string{}
		for _, d := range kinds(docs, "ClusterRoleBinding", "RoleBinding") {
			b := as[rbacv1.ClusterRoleBinding](t, d)
			for _, s := range b.Subjects {
				if s.Kind != "ServiceAccount" || s.Namespace != home {
					t.Errorf("%s binds %+v", d.name(), s)
				}
				ours := strings.HasPrefix(b.RoleRef.Name, "tenon-")
				if ours && b.RoleRef.Name != s.Name {
					t.Errorf("%s gives %s the role %s", d.name(), s.Name, b.RoleRef.Name)
				}
				if !ours && !slices.Contains([]string{
					"system:kube-scheduler", "system:volume-scheduler", "system:auth-delegator",
					"extension-apiserver-authentication-reader",
				}, b.RoleRef.Name) {
					t.Errorf("%s gives %s the role %s of another", d.name(), s.Name, b.RoleRef.Name)
				}
				roles[s.Name] = append(roles[s.Name], b.RoleRef.Name)
			}
		}
		for name, p := range pods(t, docs) {
			account, none := p.Spec.Template.Spec.ServiceAccountName, len(roles[name]) == 0
			if account != name || none != (name == withoutRights) {
				t.Errorf("%s runs as %s, which has roles %v", name, account, roles[name])
			}
			delete(roles, name)
		}
		if len(roles) > 0 {
			t.Errorf("accounts of no pod have roles: %v", roles)
		}
	})
}

func TestPeopleHaveRolesForEveryKind(t *testing.T) {
	t.Parallel()
	docs := set(t, "default")
	type rights struct{ view, edit, aggregated string }
	got := map[string]rights{}
	for _, d := range kinds(docs, "ClusterRole") {
		role := as[rbacv1.ClusterRole](t, d)
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				r := got[rule.Resources[0]+"."+group]
				const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
				switch verbs := strings.Join(rule.Verbs, " "); {
				case strings.HasSuffix(role.Name, "-viewer") && role.Labels[aggregate+"view"] == "true":
					r.view = verbs
				case strings.HasSuffix(role.Name, "-editor"):
					r.edit, r.aggregated = verbs, role.Labels[aggregate+"edit"]
				default:
					continue
				}
				got[rule.Resources[0]+"."+group] = r
			}
		}
	}
	for _, d := range kinds(docs, "CustomResourceDefinition") {
		want := rights{"get list watch", "get list watch create update patch delete", ""}
		if name, _, _ := strings.Cut(d.object.GetName(), "."); name == "podgroups" || name == "scheduleexplanations" {
			want.aggregated = "true"
		}
		if got[d.object.GetName()] != want {
			t.Errorf("%s: %+v, want %+v", d.object.GetName(), got[d.object.GetName()], want)
		}
		delete(got, d.object.GetName())
	}
	const claims = "deviceclasses.resource.k8s.io" // whoever sees devices sees who holds them
	if want := (rights{view: "get list watch"}); got[claims] != want {
		t.Errorf("%s: %+v, want %+v", claims, got[claims], want)
	}
	if delete(got, claims); len(got) > 0 {
		t.Errorf("roles for what is not a kind of ours: %v", got)
	}
}

// withoutRights is the pod that reads with the tokens of its users.
const withoutRights = "tenon-console"

func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	standard, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	inEverySet(t, func(t *testing.T, docs []document) {
		for name, p := range pods(t, docs) {
			spec := p.Spec.Template.Spec
			// Its account mounts no token by itself.
			if token := spec.AutomountServiceAccountToken; token == nil || *token == (name == withoutRights) {
				t.Errorf("%s gets a token that it does not use, or none that it needs", name)
			}
			pod, own := spec.SecurityContext, spec.Containers[0].SecurityContext
			if pod == nil {
				pod = &corev1.PodSecurityContext{}
			}
			seccomp := pod.SeccompProfile
			if own.SeccompProfile != nil {
				seccomp = own.SeccompProfile
			}
			if seccomp == nil || seccomp.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: seccomp %v", name, seccomp)
			}
			if !*own.ReadOnlyRootFilesystem || *own.AllowPrivilegeEscalation || own.Privileged != nil ||
				!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(own.Capabilities.Add) > 0 {
				t.Errorf("%s: %+v", name, own)
			}
			if name == "tenon-agent" {
				continue
			}
			if name == "tenon-manager" && strings.HasPrefix(t.Name(), "TestPodsAreRestricted/gpu") {
				if !spec.HostNetwork || spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
					t.Error("tenon-manager has not the network of its node")
				}
				spec.HostNetwork = false // which manager.hostNetwork asks for
			}
			level := policy.AggregateCheckResults(standard.EvaluatePod(
				api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
				&p.Spec.Template.ObjectMeta, &spec))
			if !level.Allowed || pod.RunAsUser == nil || *pod.RunAsUser != 65532 {
				t.Errorf("%s does not fit the pod security level restricted: %s", name, level.ForbiddenDetail())
			}
		}
	})
}

func TestTheAgentMountsWhatItNeeds(t *testing.T) {
	t.Parallel()
	const plugins = "/host/var/lib/kubelet/device-plugins"
	for name, want := range map[string]map[string]string{
		"default": {
			"/sys": "/host/sys ro", "/proc": "/host/proc ro", "/sys/fs/cgroup": "/host/sys/fs/cgroup",
			"/var/lib/kubelet": "/host/var/lib/kubelet ro", "/run/cdi": "/host/run/cdi",
			"/etc/cdi":             "/host/etc/cdi ro",
			"/var/lib/tenon-agent": "/host/var/lib/tenon-agent", "/var/run/nri": "/var/run/nri",
			"/run/tenon": "/host/var/run/tenon ro, /run/tenon", "/var/lib/kubelet/device-plugins": plugins,
		},
		"gpu": { // the kubelet is elsewhere, and the runtime has no NRI
			"/sys": "/host/sys ro", "/proc": "/host/proc ro", "/sys/fs/cgroup": "/host/sys/fs/cgroup",
			"/var/lib/k0s/kubelet": "/host/var/lib/kubelet ro", "/run/cdi": "/host/run/cdi",
			"/etc/cdi":             "/host/etc/cdi ro",
			"/var/lib/tenon-agent": "/host/var/lib/tenon-agent", "/run/tenon": "/host/var/run/tenon ro, /run/tenon",
			"/var/lib/k0s/kubelet/device-plugins": plugins,
		},
	} {
		spec := pods(t, set(t, name))["tenon-agent"].Spec.Template.Spec
		got := map[string]string{}
		for _, v := range spec.Volumes {
			var mounts []string
			for _, m := range spec.Containers[0].VolumeMounts {
				if m.Name == v.Name {
					mounts = append(mounts, strings.TrimSpace(m.MountPath+map[bool]string{true: " ro"}[m.ReadOnly]))
				}
			}
			got[v.HostPath.Path] = strings.Join(mounts, ", ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: folders of the host (-want +got):\n%s", name, diff)
		}
	}
}

func TestPodsSurviveAndAreSeen(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		for name, p := range pods(t, docs) {
			spec, replicas := p.Spec.Template.Spec, p.Spec.Replicas
			if name == withoutRights { // no pod needs it
				continue
			}
			c := spec.Containers[0]
			for probe, got := range map[string]*corev1.Probe{
				"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe,
			} {
				if got == nil || got.HTTPGet == nil || probe != "liveness" && got.HTTPGet.Path != "/readyz" {
					t.Errorf("%s: %s probe is %+v", name, probe, got)
				}
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: resources %+v", name, c.Resources)
			}
			class := map[bool]string{true: "system-node-critical", false: "system-cluster-critical"}
			if want := class[name == "tenon-agent"]; spec.PriorityClassName != want {
				t.Errorf("%s has priority class %s, want %s", name, spec.PriorityClassName, want)
			}
			if name == "tenon-agent" {
				continue
			}
			// Nodes that lack the label of one constraint get no score from any, and not each cluster has zones.
			spread, apart := spec.TopologySpreadConstraints, spec.Affinity
			if len(spread) != 1 || spread[0].TopologyKey != corev1.LabelHostname || apart == nil ||
				len(apart.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
				t.Errorf("%s: spread %+v, %+v", name, spread, apart)
			}
			budget := slices.ContainsFunc(kinds(docs, "PodDisruptionBudget"), func(d document) bool {
				return d.object.GetName() == name
			})
			if budget != (*replicas > 1) {
				t.Errorf("%s: %d replicas, has a disruption budget: %v", name, *replicas, budget)
			}
		}
	})
}

// TestSelectorsFindPods compares the selectors of everything that selects pods with the labels of the pods.
func TestSelectorsFindPods(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		templates := pods(t, docs)
		for _, d := range docs {
			path := map[string][]string{
				"Deployment": {"selector", "matchLabels"}, "DaemonSet": {"selector", "matchLabels"},
				"PodDisruptionBudget": {"selector", "matchLabels"}, "Service": {"selector"},
				"NetworkPolicy": {"podSelector", "matchLabels"},
			}[d.object.GetKind()]
			if path == nil {
				continue
			}
			want, _, err := unstructured.NestedStringMap(d.object.Object, append([]string{"spec"}, path...)...)
			if err != nil {
				t.Fatal(err)
			}
			for name, p := range templates {
				matches := labels.SelectorFromSet(want).Matches(labels.Set(p.Spec.Template.Labels))
				if matches != (name == d.object.GetName()) || len(want) == 0 {
					t.Errorf("%s selects the pods of %s: %v", d.name(), name, matches)
				}
			}
		}
	})
}

// TestNetworkPoliciesAllowWhatPodsServe compares the ports that policies open with those that containers declare.
func TestNetworkPoliciesAllowWhatPodsServe(t *testing.T) {
	t.Parallel()
	docs := set(t, "default")
	for name, p := range pods(t, docs) {
		want := map[int32]bool{}
		for _, port := range p.Spec.Template.Spec.Containers[0].Ports {
			// The kubelet asks for health, and no policy keeps it away.
			if port.Name != "health" {
				want[port.ContainerPort] = true
			}
		}
		got := map[int32]bool{}
		for _, d := range kinds(docs, "NetworkPolicy") {
			if d.object.GetName() != name {
				continue
			}
			for _, rule := range as[networkingv1.NetworkPolicy](t, d).Spec.Ingress {
				for _, port := range rule.Ports {
					got[port.Port.IntVal] = true
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: ports (-served +open):\n%s", name, diff)
		}
	}
}

func TestCRDsAreKeptByDefault(t *testing.T) {
	t.Parallel()
	const policy = "helm.sh/resource-policy"
	for name, want := range map[string]struct {
		count int
		keep  string
	}{
		"": {15, "keep"}, "crds.keep=false": {15, ""}, "crds.enabled=false": {0, ""},
		"crds.skip={podgroups.scheduling.x-k8s.io}": {14, "keep"},
	} {
		found := kinds(render(t, home, "--set", name), "CustomResourceDefinition")
		if len(found) != want.count {
			t.Errorf("%s: %d CRDs, want %d", name, len(found), want.count)
		}
		for _, d := range found {
			if got := d.object.GetAnnotations()[policy]; got != want.keep {
				t.Errorf("%s: %s of %s is %q, want %q", name, policy, d.object.GetName(), got, want.keep)
			}
		}
	}
}

func TestObjectsAreLabelled(t *testing.T) {
	t.Parallel()
	inEverySet(t, func(t *testing.T, docs []document) {
		seen := map[string]bool{}
		for _, d := range docs {
			if seen[d.name()] {
				t.Errorf("%s is rendered twice", d.name())
			}
			seen[d.name()] = true
			l := d.object.GetLabels()
			if l["app.kubernetes.io/part-of"] != "tenon" || l["app.kubernetes.io/instance"] != "tenon" ||
				l["app.kubernetes.io/managed-by"] != "Helm" || l["app.kubernetes.io/name"] == "" {
				t.Errorf("%s has the labels %v", d.name(), l)
			}
		}
	})
}

func TestImagesAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]string{
		"default": {
			"tenon-scheduler": "localhost/tenon-scheduler:devel", "tenon-manager": "localhost/tenon-manager:devel",
			"tenon-descheduler": "localhost/tenon-descheduler:devel", "tenon-agent": "localhost/tenon-agent:devel",
		},
		"ha": {
			"tenon-scheduler": "registry.example.com/tenon/tenon-scheduler@sha256:" + strings.Repeat("a", 64),
			"tenon-manager":   "registry.example.com/tenon/tenon-manager@sha256:" + strings.Repeat("b", 64),
			"tenon-agent":     "registry.example.com/tenon/tenon-agent@sha256:" + strings.Repeat("c", 64),

			"tenon-descheduler": "registry.example.com/tenon/tenon-descheduler@sha256:" + strings.Repeat("d", 64),
			"tenon-console":     "registry.example.com/tenon/kubectl-tenon@sha256:" + strings.Repeat("e", 64),
		},
		"off": {},
	} {
		got := map[string]string{}
		for pod, p := range pods(t, set(t, name)) {
			c := p.Spec.Template.Spec.Containers[0]
			got[pod] = c.Image
			if c.ImagePullPolicy != corev1.PullIfNotPresent || len(p.Spec.Template.Spec.Containers) != 1 {
				t.Errorf("%s: %+v", pod, c)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTheHeapFollowsTheLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{
		"2Gi": "1638MiB", "512Mi": "409MiB", "6Gi": "4915MiB", "1000000000": "", "1G": "", "0.5Gi": "",
	} {
		docs := render(t, home, "--set-string", "scheduler.resources.limits.memory="+limit, "--show-only",
			"templates/scheduler.yaml")
		got := ""
		for _, e := range pods(t, docs)["tenon-scheduler"].Spec.Template.Spec.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("limit %s: GOMEMLIMIT=%s, want %q", limit, got, want)
		}
	}
}

// TestMonitoringIsOneSwitch checks that nothing of the Prometheus operator is rendered without it, and that rules and
// dashboards are those of the chart's files.
func TestMonitoringIsOneSwitch(t *testing.T) {
	t.Parallel()
	own := func(docs []document) []string {
		return names(slices.DeleteFunc(slices.Clone(docs), func(d document) bool {
			return d.object.GroupVersionKind().Group != "monitoring.coreos.com" &&
				!strings.HasPrefix(d.object.GetName(), "tenon-dashboard-")
		}))
	}
	if got := own(set(t, "default")); got != nil {
		t.Errorf("by default: %v", got)
	}
	want := []string{
		"ServiceMonitor tenon-system/tenon-agent", "ServiceMonitor tenon-system/tenon-descheduler",
		"ServiceMonitor tenon-system/tenon-manager", "ServiceMonitor tenon-system/tenon-scheduler",
	}
	rules, err := filepath.Glob("chart/files/rules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) > 0 {
		want = append(want, "PrometheusRule tenon-system/tenon")
	}
	dashboards, err := filepath.Glob("chart/files/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dashboards {
		want = append(want, "ConfigMap tenon-system/tenon-dashboard-"+strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	got := own(set(t, "ha"))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with monitoring (-want +got):\n%s", diff)
	}
	for _, d := range kinds(set(t, "ha"), "ConfigMap") {
		for name, got := range as[corev1.ConfigMap](t, d).Data {
			text, err := os.ReadFile(filepath.Join("chart/files/dashboards", name))
			if err != nil || strings.TrimSpace(string(text)) != strings.TrimSpace(got) {
				t.Errorf("%s is not the dashboard of the file: %v", d.name(), err)
			}
		}
	}
	var groups []any
	for _, file := range rules {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var manifest struct{ Groups []any }
		if err := yaml.Unmarshal(text, &manifest); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, manifest.Groups...)
	}
	for _, d := range kinds(set(t, "ha"), "PrometheusRule") {
		rendered, _, err := unstructured.NestedSlice(d.object.Object, "spec", "groups")
		if diff := cmp.Diff(fmt.Sprint(groups), fmt.Sprint(rendered)); err != nil || diff != "" {
			t.Errorf("groups of rules (-files +rendered): %v\n%s", err, diff)
		}
	}
}

// TestComponentsAreSwitches checks that one that is off leaves nothing behind.
func TestComponentsAreSwitches(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"scheduler", "manager", "descheduler", "agent"} {
		docs := render(t, home, "--set", component+".enabled=false", "--set", "monitoring.enabled=true")
		for _, d := range docs {
			if name := d.object.GetLabels()["app.kubernetes.io/name"]; name == "tenon-"+component {
				t.Errorf("%s off: %s is rendered", component, d.name())
			}
		}
		if len(pods(t, docs)) != 3 {
			t.Errorf("%s off: %v", component, slices.Collect(maps.Keys(pods(t, docs))))
		}
	}
}

// TestTheConsoleHasNoRights: it reads with the tokens of its users, so it has neither a token nor a role.
func TestTheConsoleHasNoRights(t *testing.T) {
	t.Parallel()
	docs := render(t, home, "--set", "console.enabled=true")
	for _, d := range docs {
		kind, text := d.object.GetKind(), fmt.Sprint(d.object.Object["subjects"])
		if strings.HasSuffix(kind, "RoleBinding") && strings.Contains(text, "tenon-console") {
			t.Errorf("%s gives it rights", d.name())
		}
	}
	pod := pods(t, docs)["tenon-console"].Spec.Template.Spec
	mounts := pod.AutomountServiceAccountToken
	if pod.ServiceAccountName != "tenon-console" || mounts == nil || *mounts {
		t.Errorf("account %q, its token is mounted", pod.ServiceAccountName)
	}
	var own []string
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			for _, item := range v.Secret.Items {
				own = append(own, v.Secret.SecretName+" "+item.Key)
			}
		} else if v.ConfigMap == nil {
			t.Errorf("volume %+v is neither a certificate nor the authority of the API server", v)
		}
	}
	if want := []string{"tenon-certificates console.crt", "tenon-certificates console.key"}; !slices.Equal(own, want) {
		t.Errorf("it has %q of Secrets, want %q", own, want)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no certificate": {[]string{"manager.enabled=false"}, "console.tlsSecret is empty"},
		"an unknown key": {[]string{"console.writes=true"}, "writes"},
	} {
		args := []string{"--set", "console.enabled=true"}
		for _, a := range c.args {
			args = append(args, "--set", a)
		}
		if _, err := rendered(home, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestTheManagerFollowsTheSchedulersQuotas reads what the manager is given of the scheduler's configuration.
func TestTheManagerFollowsTheSchedulersQuotas(t *testing.T) {
	t.Parallel()
	for _, d := range kinds(set(t, "gpu"), "ConfigMap") {
		if d.object.GetName() != "tenon-manager" {
			continue
		}
		args, err := config.Decode[config.ElasticQuotaArgs](&runtime.Unknown{
			Raw: []byte(as[corev1.ConfigMap](t, d).Data["elastic-quota.yaml"]),
		})
		if err != nil || args.MissingQuotaPolicy != config.MissingQuotaReject || args.DelayEvictTime.Minutes() != 5 {
			t.Errorf("%+v, %v; want what testdata/gpu.yaml has", args, err)
		}
		return
	}
	t.Error("the manager has no arguments of quotas")
}

// Rights of the descheduler that only some configurations need are not granted to others.
func TestTheDeschedulerHasTheRightsOfItsConfiguration(t *testing.T) {
	t.Parallel()
	const nodeMetrics = "- apiGroups: [slo.koordinator.sh]\n  resources: [nodemetrics]\n  verbs: [list, watch]\n"
	const nomination = "- apiGroups: [\"\"]\n  resources: [pods/status]\n  verbs: [patch]\n"
	const costs = "- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [patch]\n"
	const requests = "- apiGroups: [lifecycle.k8s.io]\n  resources: [evictionrequests]\n" +
		"  verbs: [get, list, watch, create, delete]\n"
	plugin := `{"profiles":[{"name":"a","plugins":{"balance":{"enabled":[{"name":"%s"}]}}}]}`
	policy := `{"profiles":[{"name":"a","pluginConfig":[{"name":"MigrationController",` +
		`"args":{"evictionPolicy":"%s"}}]}]}`
	for right, c := range map[string]struct{ config, with, without string }{
		nodeMetrics: {plugin, "LowNodeLoad", "LowNodeUtilization"},
		nomination:  {plugin, "MakeRoom", "LowNodeLoad"},
		costs:       {plugin, "ScaleDownBinPack", "MakeRoom"},
		requests:    {policy, "Request", "Eviction"},
	} {
		has := func(value string) bool {
			docs, err := rendered(home, "--set-json", "descheduler.config="+fmt.Sprintf(c.config, value))
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(docs, func(d document) bool {
				return d.object.GetKind() == "ClusterRole" && d.object.GetName() == "tenon-descheduler" &&
					strings.Contains(d.text, right)
			})
		}
		if !has(c.with) {
			t.Errorf("%s has not the right\n%s", c.with, right)
		}
		if has(c.without) {
			t.Errorf("%s has the right\n%s", c.without, right)
		}
	}
}
