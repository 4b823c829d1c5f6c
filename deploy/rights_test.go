package deploy_test

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
)

// decoded are the objects of a kind that the chart renders with its default values.
func decoded[T any](t *testing.T, kind string) (all []T) {
	t.Helper()
	for _, d := range set(t, "default") {
		if d.object.GetKind() == kind {
			var o T
			testkit.Check(t, yaml.UnmarshalStrict([]byte(d.text), &o))
			all = append(all, o)
		}
	}
	return all
}

// TestTheRightsAreOnTheirPage writes docs/reference/rights.md with -update, and compares it.
func TestTheRightsAreOnTheirPage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	out.WriteString("# What the chart gives each component\n\n<!-- Written by the test of deploy from the rendered " +
		"chart, with -update. -->\n\nWith the default values, in `tenon-system`. " +
		"[The security model](../guide/security.md) says what it is for.\n")
	pods := map[string]corev1.PodSpec{}
	for _, d := range decoded[appsv1.Deployment](t, "Deployment") {
		pods[d.Name] = d.Spec.Template.Spec
	}
	for _, d := range decoded[appsv1.DaemonSet](t, "DaemonSet") {
		pods[d.Name] = d.Spec.Template.Spec
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range decoded[rbacv1.ClusterRole](t, "ClusterRole") {
		rules["ClusterRole "+r.Name] = r.Rules
	}
	for _, r := range decoded[rbacv1.Role](t, "Role") {
		rules["Role "+r.Name] = r.Rules
	}
	bindings := decoded[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding")
	for _, b := range decoded[rbacv1.RoleBinding](t, "RoleBinding") {
		bindings = append(bindings, rbacv1.ClusterRoleBinding{
			ObjectMeta: b.ObjectMeta, Subjects: b.Subjects, RoleRef: b.RoleRef,
		})
	}
	needs := readNeeds(t)
	for _, name := range []string{"tenon-scheduler", "tenon-manager", "tenon-descheduler", "tenon-agent"} {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n| May | On | In | Without it fails |\n|---|---|---|---|\n", name,
			describePod(pods[name]))
		for _, b := range bindings {
			if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == name }) {
				continue
			}
			in := cmp.Or(b.Namespace, "the cluster")
			granted := rules[b.RoleRef.Kind+" "+b.RoleRef.Name]
			for _, r := range granted {
				fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", strings.Join(r.Verbs, ", "), resources(r), in,
					needs.reasonFor(name, r))
			}
			if granted == nil {
				fmt.Fprintf(&out, "| what Kubernetes' role `%s` has | | %s | %s |\n", b.RoleRef.Name, in,
					needs.reasonFor(name, builtIn(b.RoleRef.Name)))
			}
		}
	}
	out.WriteString("\n## Roles for people\n\nThey are bound to no subject.\n\n" +
		"| Role | May | On | Comes with |\n|---|---|---|---|\n")
	for _, r := range decoded[rbacv1.ClusterRole](t, "ClusterRole") {
		if slices.ContainsFunc(bindings, func(b rbacv1.ClusterRoleBinding) bool { return b.RoleRef.Name == r.Name }) {
			continue
		}
		with := ""
		for key := range r.Labels {
			if role, ok := strings.CutPrefix(key, "rbac.authorization.k8s.io/aggregate-to-"); ok {
				with = "`" + role + "`"
			}
		}
		for _, rule := range r.Rules {
			may := strings.Join(rule.Verbs, ", ")
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.Name, may, resources(rule), with)
		}
	}
	out.WriteString("\n## Admission policies\n\n| Policy | Checks | Refuses with |\n|---|---|---|\n")
	type policy = admissionregistrationv1.ValidatingAdmissionPolicy
	for _, p := range decoded[policy](t, "ValidatingAdmissionPolicy") {
		for _, v := range p.Spec.Validations {
			var on []string
			for _, r := range p.Spec.MatchConstraints.ResourceRules {
				on = append(on, onResources(r.Rule))
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", p.Name, strings.Join(on, ", "),
				cmp.Or(v.Message, "`"+v.MessageExpression+"`"))
		}
	}
	out.WriteString("\n## Webhooks\n\n| Webhook | Asked about | Without an answer |\n|---|---|---|\n")
	row := func(name string, rules []admissionregistrationv1.RuleWithOperations,
		failure *admissionregistrationv1.FailurePolicyType, seconds *int32,
	) {
		var on []string
		for _, r := range rules {
			for _, o := range r.Operations {
				on = append(on, strings.ToLower(string(o))+" "+onResources(r.Rule))
			}
		}
		answer := "accepted"
		if *failure == admissionregistrationv1.Fail {
			answer = "refused"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s after %d s |\n", name, strings.Join(on, ", "), answer, *seconds)
	}
	type mutating = admissionregistrationv1.MutatingWebhookConfiguration
	for _, c := range decoded[mutating](t, "MutatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			row(w.Name+" (mutating)", w.Rules, w.FailurePolicy, w.TimeoutSeconds)
		}
	}
	type validating = admissionregistrationv1.ValidatingWebhookConfiguration
	for _, c := range decoded[validating](t, "ValidatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			row(w.Name, w.Rules, w.FailurePolicy, w.TimeoutSeconds)
		}
	}
	golden(t, path.Join("..", "docs", "reference", "rights.md"), out.String())
}

// behaviour is one of testdata/rights.yaml.
type behaviour struct {
	Behaviour string
	Needs     []string
}

type needs []behaviour

func readNeeds(t *testing.T) (n needs) {
	t.Helper()
	text, err := os.ReadFile("testdata/rights.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &n)
	}
	testkit.Check(t, err)
	return n
}

// reasonFor names the first behaviour that needs each verb of a rule.
func (n needs) reasonFor(account string, rule rbacv1.PolicyRule) string {
	var names []string
	for _, verb := range rule.Verbs {
		i := slices.IndexFunc(n, func(b behaviour) bool {
			return slices.ContainsFunc(b.Needs, func(text string) bool {
				words := strings.Fields(text)
				return words[0] == account && slices.Contains(strings.Split(words[1], ","), verb) &&
					slices.ContainsFunc(words[2:], func(account string) bool {
						return strings.Contains(resources(rule), "`"+account+"`")
					})
			})
		})
		if i >= 0 && !slices.Contains(names, n[i].Behaviour) {
			names = append(names, n[i].Behaviour)
		}
	}
	return strings.Join(names, "; ")
}

// builtIn has of a role of Kubernetes what the chart binds it for.
func builtIn(role string) rbacv1.PolicyRule {
	return map[string]rbacv1.PolicyRule{
		"system:kube-scheduler": {
			Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/binding"},
		},
		"system:volume-scheduler": {
			Verbs: []string{"update"}, APIGroups: []string{""}, Resources: []string{"persistentvolumes"},
		},
		"system:auth-delegator": {
			Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{"tokenreviews"},
		},
		"extension-apiserver-authentication-reader": {
			Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
		},
	}[role]
}

func describePod(spec corev1.PodSpec) string {
	var rows strings.Builder
	row := func(name, text string) { fmt.Fprintf(&rows, "| %s | %s |\n", name, cmp.Or(text, "none")) }
	c := spec.Containers[0]
	user := c.SecurityContext.RunAsUser
	if user == nil {
		user = spec.SecurityContext.RunAsUser
	}
	rows.WriteString("| Pod | |\n|---|---|\n")
	row("account", "`system:serviceaccount:tenon-system:"+spec.ServiceAccountName+"`")
	row("user", fmt.Sprint(*user))
	var capabilities, shares, folders, ports []string
	for _, add := range c.SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, string(add))
	}
	row("capabilities", strings.Join(capabilities, ", "))
	for name, shared := range map[string]bool{
		"network": spec.HostNetwork, "processes": spec.HostPID, "IPC": spec.HostIPC,
	} {
		if shared {
			shares = append(shares, name)
		}
	}
	slices.Sort(shares)
	row("namespaces of the node", strings.Join(shares, ", "))
	writes := map[string]bool{}
	for _, m := range c.VolumeMounts {
		writes[m.Name] = writes[m.Name] || !m.ReadOnly
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			may := "reads"
			if writes[v.Name] {
				may = "writes"
			}
			folders = append(folders, may+" `"+v.HostPath.Path+"`")
		}
	}
	slices.Sort(folders)
	row("folders of the node", strings.Join(folders, ", "))
	for _, p := range c.Ports {
		ports = append(ports, fmt.Sprintf("%s %d", p.Name, p.ContainerPort))
	}
	row("ports of the pod", strings.Join(ports, ", "))
	return rows.String()
}

func resources(r rbacv1.PolicyRule) string {
	var all []string
	for _, name := range r.NonResourceURLs {
		all = append(all, "`"+name+"`")
	}
	for _, group := range r.APIGroups {
		for _, name := range r.Resources {
			all = append(all, "`"+schema.GroupResource{Group: group, Resource: name}.String()+"`")
		}
	}
	text := strings.Join(all, ", ")
	if len(r.ResourceNames) > 0 {
		text += " named `" + strings.Join(r.ResourceNames, "`, `") + "`"
	}
	return text
}

func onResources(r admissionregistrationv1.Rule) string {
	var all []string
	for _, name := range r.Resources {
		all = append(all, "`"+name+"`")
	}
	return strings.Join(all, ", ")
}

// TestTheViewerOfDevicesSeesTheirClaims: without these rights, `tenon top gpu` and `tenon topology` show no claim.
func TestTheViewerOfDevicesSeesTheirClaims(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range decoded[rbacv1.ClusterRole](t, "ClusterRole") {
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				if r.Name == "tenon-device-viewer" && slices.Contains(rule.APIGroups, "resource.k8s.io") {
					seen[resource] = slices.Equal(rule.Verbs, []string{"get", "list", "watch"})
				}
			}
		}
	}
	for _, resource := range []string{"resourceslices", "resourceclaims", "deviceclasses"} {
		if !seen[resource] {
			t.Errorf("tenon-device-viewer may not read %s", resource)
		}
	}
}
