package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/testkit"
)

// agentPolicy is the policy that keeps an agent to its own node.
func agentPolicy(t *testing.T) admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	for _, doc := range deploy.RBAC() {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		testkit.Check(t, yaml.Unmarshal(doc, &policy))
		if policy.Kind != "ValidatingAdmissionPolicy" || policy.Name != "tenon-agent-own-node" {
			continue
		}
		testkit.Check(t, yaml.UnmarshalStrict(doc, &policy))
		return policy
	}
	t.Fatal("no ValidatingAdmissionPolicy")
	return admissionregistrationv1.ValidatingAdmissionPolicy{}
}

// holds evaluates expressions as the API server does, variables first.
func holds(t *testing.T, variables []admissionregistrationv1.Variable, expressions []string,
	attributes admission.Attributes,
) []bool {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	testkit.Check(t, err)
	for _, v := range variables {
		compiled := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression},
			cel.OptionalVariableDeclarations{}, environment.NewExpressions)
		if compiled.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, compiled.Error)
		}
	}
	var conditions []cel.ExpressionAccessor
	for _, e := range expressions {
		conditions = append(conditions, &validating.ValidationCondition{Expression: e})
	}
	evaluator := compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(),
		VersionedObject:    admission.NewLazyObject(attributes.GetObject()),
		VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
	}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(attributes.GetResource()),
		metav1.GroupVersionKind(attributes.GetKind()))
	results, _, err := evaluator.ForInput(compiler.CreateContext(t.Context()), versioned, request,
		cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	testkit.Check(t, err)
	answers := make([]bool, len(results))
	for i, r := range results {
		if r.Error != nil {
			t.Fatalf("%s: %v", expressions[i], r.Error)
		}
		answers[i] = r.EvalResult.Value() == true
	}
	return answers
}

// TestPoliciesMatchTheAccountThatTheAgentRunsAs fails where the account was renamed in one manifest alone: the policies
// would then match no agent, and restrict none.
func TestPoliciesMatchTheAccountThatTheAgentRunsAs(t *testing.T) {
	t.Parallel()
	var ds appsv1.DaemonSet
	testkit.Check(t, yaml.UnmarshalStrict(deploy.Agent()[0], &ds))
	account := rbacv1.Subject{
		Kind: "ServiceAccount", Namespace: ds.Namespace, Name: ds.Spec.Template.Spec.ServiceAccountName,
	}
	username := "system:serviceaccount:" + account.Namespace + ":" + account.Name
	var made bool
	var roles []string
	policies, bound := map[string]bool{}, map[string]bool{}
	for _, doc := range deploy.RBAC() {
		var o struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        metav1.ObjectMeta
			Subjects        []rbacv1.Subject
			RoleRef         rbacv1.RoleRef
			Spec            struct {
				PolicyName        string
				ValidationActions []admissionregistrationv1.ValidationAction
				MatchConditions   []admissionregistrationv1.MatchCondition
			}
		}
		testkit.Check(t, yaml.Unmarshal(doc, &o))
		switch o.Kind {
		case "ServiceAccount":
			made = made || o.Metadata.Namespace == account.Namespace && o.Metadata.Name == account.Name
		case "ClusterRoleBinding":
			if slices.Contains(o.Subjects, account) {
				roles = append(roles, o.RoleRef.Name)
			}
		case "ValidatingAdmissionPolicyBinding":
			bound[o.Spec.PolicyName] = slices.Contains(o.Spec.ValidationActions, admissionregistrationv1.Deny)
		case "ValidatingAdmissionPolicy":
			policies[o.Metadata.Name] = true
			i := slices.IndexFunc(o.Spec.MatchConditions, func(m admissionregistrationv1.MatchCondition) bool {
				return m.Name == "an-agent"
			})
			if i < 0 {
				t.Errorf("policy %s has no match condition an-agent", o.Metadata.Name)
				continue
			}
			for name, want := range map[string]bool{username: true, username + "x": false} {
				who := admission.NewAttributesRecord(nil, nil, v1alpha2.GroupVersion().WithKind("NodeResourceTopology"),
					"", "a", v1alpha2.Resource(), "", admission.Delete, nil, false, &user.DefaultInfo{Name: name})
				if got := holds(t, nil, []string{o.Spec.MatchConditions[i].Expression}, who)[0]; got != want {
					t.Errorf("policy %s matches %s: %v, want %v", o.Metadata.Name, name, got, want)
				}
			}
		}
	}
	if !made {
		t.Errorf("no manifest makes the DaemonSet's account %s/%s", account.Namespace, account.Name)
	}
	if !slices.Equal(roles, []string{"tenon-agent"}) {
		t.Errorf("%s is bound to the roles %v, want tenon-agent alone", username, roles)
	}
	if len(policies) == 0 || !maps.Equal(policies, bound) {
		t.Errorf("policies %v, of which bindings deny by %v; want all of them", policies, bound)
	}
}

func TestAnAgentChangesOnlyItsOwnNode(t *testing.T) {
	t.Parallel()
	policy := agentPolicy(t)
	agentOn := func(node string) user.Info {
		return &user.DefaultInfo{
			Name:  "system:serviceaccount:tenon-system:tenon-agent",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}},
		}
	}
	nrt := func(name string) runtime.Object {
		return &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	numatopology := func(name string) runtime.Object {
		return &nodeinfo.Numatopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	node := func(name string) runtime.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	tests := map[string]struct {
		who         user.Info
		object, old runtime.Object
		name        string // in the request's path; a create has none
		matched     bool
		want        bool
	}{
		"its own topology, created":        {agentOn("a"), nrt("a"), nil, "", true, true},
		"its own topology, changed":        {agentOn("a"), nrt("a"), nrt("a"), "a", true, true},
		"its own topology, deleted":        {agentOn("a"), nil, nrt("a"), "a", true, true},
		"its own Numatopology":             {agentOn("a"), numatopology("a"), numatopology("a"), "a", true, true},
		"another's Numatopology, applied":  {agentOn("a"), numatopology("b"), nil, "b", true, false},
		"its own node's status":            {agentOn("a"), node("a"), node("a"), "a", true, true},
		"another's topology, created":      {agentOn("a"), nrt("b"), nil, "", true, false},
		"another's topology, applied anew": {agentOn("a"), nrt("b"), nil, "b", true, false},
		"another's topology, changed":      {agentOn("a"), nrt("b"), nrt("b"), "b", true, false},
		"another's topology, deleted":      {agentOn("a"), nil, nrt("b"), "b", true, false},
		"another's node's status":          {agentOn("a"), node("b"), node("b"), "b", true, false},
		"a token that names no node": {
			&user.DefaultInfo{Name: "system:serviceaccount:tenon-system:tenon-agent"},
			nrt("a"), nrt("a"), "a", true, false,
		},
		"a user who is not an agent": {&user.DefaultInfo{Name: "admin"}, nrt("a"), nrt("a"), "a", false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operation := admission.Update
			switch {
			case tt.old == nil:
				operation = admission.Create
			case tt.object == nil:
				operation = admission.Delete
			}
			gvk, gvr := v1alpha2.GroupVersion().WithKind("NodeResourceTopology"), v1alpha2.Resource()
			switch tt.object.(type) {
			case *corev1.Node:
				gvk, gvr = corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes")
			case *nodeinfo.Numatopology:
				gvk, gvr = nodeinfo.GroupVersion().WithKind("Numatopology"), nodeinfo.Resource()
			}
			attributes := admission.NewAttributesRecord(tt.object, tt.old, gvk, "", tt.name, gvr, "", operation, nil,
				false, tt.who)

			matched := true
			for _, c := range policy.Spec.MatchConditions {
				matched = matched && holds(t, nil, []string{c.Expression}, attributes)[0]
			}
			if matched != tt.matched {
				t.Fatalf("matched = %v, want %v", matched, tt.matched)
			}
			if !matched {
				return
			}
			var expressions []string
			for _, v := range policy.Spec.Validations {
				expressions = append(expressions, v.Expression)
			}
			allowed := true
			for _, ok := range holds(t, policy.Spec.Variables, expressions, attributes) {
				allowed = allowed && ok
			}
			if allowed != tt.want {
				t.Errorf("allowed = %v, want %v", allowed, tt.want)
			}
		})
	}
}

func TestThePolicyJudgesAllThatAnAgentMayWrite(t *testing.T) {
	t.Parallel()
	matched := map[string]bool{}
	for _, doc := range deploy.RBAC() {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		testkit.Check(t, yaml.Unmarshal(doc, &policy))
		if policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				matched[resource] = true
			}
		}
	}
	for _, doc := range deploy.RBAC() {
		var role rbacv1.ClusterRole
		testkit.Check(t, yaml.Unmarshal(doc, &role))
		if role.Kind != "ClusterRole" || role.Name != "tenon-agent" {
			continue
		}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Verbs, func(verb string) bool {
				return verb != "get" && verb != "list" &&
					verb != "watch"
			}) {
				continue
			}
			for _, resource := range rule.Resources {
				parent, _, _ := strings.Cut(resource, "/")
				if !matched[resource] && !matched[parent+"/*"] {
					t.Errorf("an agent may write %s of any node", resource)
				}
			}
		}
		return
	}
	t.Error("no ClusterRole has the name tenon-agent")
}
