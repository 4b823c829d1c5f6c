package system

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	agent "github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/status"
	manager "github.com/tenon-project/tenon/internal/control/app"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// request is what an account asked the API server for, or may ask it for: then "" is any name or namespace.
type request struct{ account, verb, resource, namespace, name string }

func (r request) String() string { return r.account + " " + r.verb + " " + r.resource }

func (r request) rule() rbacv1.PolicyRule {
	kind := schema.ParseGroupResource(r.resource)
	rule := rbacv1.PolicyRule{
		Verbs: []string{r.verb}, APIGroups: []string{kind.Group}, Resources: []string{kind.Resource},
	}
	if r.name != "" {
		rule.ResourceNames = []string{r.name}
	}
	return rule
}

// right is one verb on one resource in a role of the chart, or all of a role of Kubernetes that the chart binds.
type right struct {
	text    string
	may     []request
	builtIn bool
	kept    bool // also where system:kube-scheduler has it, which not every version of Kubernetes gives it
	// granted and revoked are manifests that give the right and take it away.
	granted, revoked string
}

func (r *right) allows(what request) bool {
	return slices.ContainsFunc(r.may, func(may request) bool {
		return may.String() == what.String() && (may.namespace == "" || may.namespace == what.namespace) &&
			(may.name == "" || may.name == what.name)
	})
}

// audited is a cluster whose API server writes down what Tenon's accounts ask it for.
type audited struct {
	local
	data    datadir.Dir
	log     string
	config  *rest.Config
	objects dynamic.Interface
	applier *install.Applier
	metrics string        // address of the manager's
	asks    string        // address of the descheduler's
	agent   agent.Options // of the agent of the joined node

	mu    sync.Mutex // guards asked
	asked []request  // of the kubelet
}

const (
	accounts = "system:serviceaccount:tenon-system:"
	joined   = "joined" // the node whose agent runs in the test's process
	policy   = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n" +
		"  users: [" + accounts + "tenon-scheduler, " + accounts + "tenon-manager, " + accounts +
		"tenon-descheduler, " + accounts + "tenon-agent]\n" +
		"- level: None\n"
)

// kept are rights that system:kube-scheduler has where an alpha feature is on, and one that Kubernetes means to take
// back.
func kept() []string {
	return []string{
		"tenon-scheduler list podgroups.scheduling.k8s.io", "tenon-scheduler watch podgroups.scheduling.k8s.io",
		"tenon-scheduler patch podgroups/status.scheduling.k8s.io",
		"tenon-scheduler create leases.coordination.k8s.io",
	}
}

// startAudited starts a control plane with the chart's accounts, two schedulers and a node with GPUs.
func startAudited(t *testing.T) *audited {
	t.Helper()
	bin := binary(t)
	folder := t.TempDir()
	file, a := filepath.Join(folder, "policy.yaml"), &audited{}
	testkit.Check(t, os.WriteFile(file, []byte(policy), 0o600))
	var err error
	a.data, err = datadir.Resolve(filepath.Join(folder, "data"))
	testkit.Check(t, err)
	a.dir, a.log = a.data.Root(), a.data.Log("audit")
	nodes, err := cluster.Expand([]string{"t4-2"}, 0)
	testkit.Check(t, err)
	running, err := cluster.Start(t.Context(), cluster.Options{
		Dir: a.data, Nodes: nodes, Joined: []string{joined}, Schedulers: 2, Binary: bin,
		Manifests: slices.Concat(otherCRDs(t), deploy.RBAC(), deploy.PriorityClasses()), Report: func(cluster.Step) {},
		// Without streaming lists, as before Kubernetes 1.32: clients have to list.
		Flags: []string{"--feature-gates=WatchList=false", "--audit-policy-file=" + file, "--audit-log-path=" + a.log},
	})
	testkit.Check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, a.dir)
		}
		testkit.Check(t, running.Stop())
	})
	a.config, err = clientcmd.BuildConfigFromFlags("", a.data.Kubeconfig())
	testkit.Check(t, err)
	a.config.QPS = -1
	a.client, err = kubernetes.NewForConfig(a.config)
	testkit.Check(t, err)
	a.objects, err = dynamic.NewForConfig(a.config)
	testkit.Check(t, err)
	a.applier, err = install.NewApplier(a.config)
	testkit.Check(t, err)
	return a
}

// otherCRDs are the chart's, but the status of two kinds is as other installations have it: in a subresource of the
// one, and not of the other.
func otherCRDs(t *testing.T) (texts [][]byte) {
	t.Helper()
	for _, text := range deploy.CRDs() {
		var o map[string]any
		testkit.Check(t, yaml.Unmarshal(text, &o))
		versions, _, _ := unstructured.NestedSlice(o, "spec", "versions")
		name, _, _ := unstructured.NestedString(o, "metadata", "name")
		for _, v := range versions {
			switch name {
			case "elasticquotas.scheduling.sigs.k8s.io":
				v.(map[string]any)["subresources"] = map[string]any{"status": map[string]any{}}
			case "podgroups.scheduling.x-k8s.io":
				delete(v.(map[string]any), "subresources")
			}
		}
		testkit.Check(t, unstructured.SetNestedSlice(o, versions, "spec", "versions"))
		text, err := json.Marshal(o)
		testkit.Check(t, err)
		texts = append(texts, text)
	}
	return texts
}

// requests returns what was asked for until now, and what of it was refused.
func (a *audited) requests(t *testing.T) (allowed, forbidden []request) {
	t.Helper()
	text, err := os.ReadFile(a.log)
	testkit.Check(t, err)
	for line := range bytes.Lines(text) {
		var e struct {
			Verb        string
			User        struct{ Username string }
			ObjectRef   *struct{ Resource, Subresource, APIGroup, Namespace, Name string }
			Status      struct{ Code int } `json:"responseStatus"`
			Annotations map[string]string
		}
		if json.Unmarshal(line, &e) != nil || e.ObjectRef == nil {
			continue // a line that is being written, or a path without a resource
		}
		object := e.ObjectRef
		r := request{
			account: strings.TrimPrefix(e.User.Username, accounts), verb: e.Verb,
			namespace: object.Namespace, name: object.Name,
			resource: schema.GroupResource{
				Group: object.APIGroup, Resource: path.Join(object.Resource, object.Subresource),
			}.String(),
		}
		if e.Annotations["authorization.k8s.io/decision"] != "allow" {
			forbidden = append(forbidden, r)
			continue
		}
		allowed = append(allowed, r)
		if e.Verb == "patch" && e.Status.Code == http.StatusCreated { // server-side apply needs both rights
			r.verb = "create"
			allowed = append(allowed, r)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(allowed, a.asked...), forbidden
}

// rights returns what the chart grants.
func (a *audited) rights(t *testing.T) (all []right) {
	t.Helper()
	type role struct {
		rbacv1.RoleBinding // has all fields of the four kinds but the rules
		Rules              []rbacv1.PolicyRule
	}
	roles := map[string]role{}
	var bindings []role
	for _, text := range deploy.RBAC() {
		var o role
		testkit.Check(t, yaml.Unmarshal(text, &o))
		if len(o.Subjects) > 0 {
			bindings = append(bindings, o)
		} else {
			roles[o.Kind+" "+o.Name] = o
		}
	}
	for _, b := range bindings {
		r, own := roles[b.RoleRef.Kind+" "+b.RoleRef.Name]
		if !own && b.RoleRef.Kind == "Role" {
			got, err := a.client.RbacV1().Roles(b.Namespace).Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
			testkit.Check(t, err)
			r.Rules = got.Rules
		} else if !own {
			got, err := a.client.RbacV1().ClusterRoles().Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
			testkit.Check(t, err)
			r.Rules = got.Rules
		}
		account, unbound := b.Subjects[0].Name, b.RoleBinding
		unbound.Subjects = nil
		whole := right{
			text: account + ": what Kubernetes' role " + b.RoleRef.Name + " has", builtIn: true,
			granted: manifest(t, b.RoleBinding), revoked: manifest(t, unbound),
		}
		var rules []rbacv1.PolicyRule
		for _, rule := range r.Rules {
			for _, may := range expand(account, b.Namespace, rule) {
				whole.may, rules = append(whole.may, may), append(rules, may.rule())
			}
		}
		if !own {
			all = append(all, whole)
			continue
		}
		for i, may := range whole.may {
			role := rbacv1.Role{TypeMeta: r.TypeMeta, ObjectMeta: r.ObjectMeta, Rules: r.Rules}
			entry := right{text: may.String(), may: []request{may}, kept: slices.Contains(kept(), may.String())}
			entry.granted = manifest(t, role)
			role.Rules = slices.Delete(slices.Clone(rules), i, i+1)
			entry.revoked = manifest(t, role)
			all = append(all, entry)
		}
	}
	for i := range all {
		for _, o := range all {
			if all[i].kept && o.builtIn && o.may[0].account == all[i].may[0].account {
				all[i].granted += o.granted
				all[i].revoked += o.revoked
			}
		}
	}
	return all
}

func manifest(t *testing.T, o any) string {
	t.Helper()
	text, err := yaml.Marshal(o)
	testkit.Check(t, err)
	return "---\n" + string(text)
}

func expand(account, namespace string, rule rbacv1.PolicyRule) (all []request) {
	for _, group := range rule.APIGroups {
		for _, kind := range rule.Resources {
			kind := schema.GroupResource{Group: group, Resource: kind}.String()
			for _, verb := range rule.Verbs {
				if len(rule.ResourceNames) == 0 {
					all = append(all, request{account, verb, kind, namespace, ""})
				}
				for _, name := range rule.ResourceNames {
					all = append(all, request{account, verb, kind, namespace, name})
				}
			}
		}
	}
	return all
}

// behaviour is something that users have of Tenon, and what its accounts ask for meanwhile.
type behaviour struct {
	Name  string `json:"behaviour"`
	Apply string // manifests
	Step  string
	Test  string   // FILE NAME of another test, which makes the requests
	Needs []string // each ACCOUNT VERB,VERB… RESOURCE RESOURCE…
}

func (b *behaviour) requests() (all []request) {
	for _, text := range b.Needs {
		words := strings.Fields(text)
		for verb := range strings.SplitSeq(words[1], ",") {
			for _, account := range words[2:] {
				all = append(all, request{account: words[0], verb: verb, resource: account})
			}
		}
	}
	return all
}

// TestEachRightIsNeeded does what deploy/testdata/rights.yaml describes. With all rights that the chart grants no
// request is refused. Then each right is taken away in turn: the API server refuses a request that it has had, and the
// behaviour that fails is named.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	a := startAudited(t)
	text, err := os.ReadFile("../../deploy/testdata/rights.yaml")
	testkit.Check(t, err)
	var behaviours []behaviour
	testkit.Check(t, yaml.UnmarshalStrict(text, &behaviours))
	steps, needed := a.steps(), map[string]string{} // the first behaviour that asks, by request
	for _, b := range behaviours {
		if file, name, elsewhere := strings.Cut(b.Test, " "); elsewhere {
			text, err := os.ReadFile(filepath.Join("..", "..", file))
			if err != nil || !strings.Contains(string(text), "\nfunc "+name+"(") {
				t.Errorf("%s: there is no %s: %v", b.Name, b.Test, err)
			}
			a.asked = append(a.asked, b.requests()...)
		}
		a.apply(t, b.Apply)
		if do := steps[b.Step]; do != nil {
			do(t)
		} else if b.Step != "" {
			t.Fatalf("no step is named %q", b.Step)
		}
		delete(steps, b.Step)
		waitFor(t, 2*time.Minute, b.Name, func() error {
			missing := b.requests()
			allowed, _ := a.requests(t)
			for _, r := range allowed {
				missing = slices.DeleteFunc(missing, func(m request) bool { return m.String() == r.String() })
			}
			if len(missing) > 0 {
				return fmt.Errorf("no request to %v", missing)
			}
			return nil
		})
		for _, r := range b.requests() {
			needed[r.String()] = cmp.Or(needed[r.String()], b.Name)
		}
	}
	if len(steps) > 0 {
		t.Errorf("steps of no behaviour: %v", steps)
	}
	allowed, forbidden := a.requests(t)
	for _, r := range forbidden {
		t.Errorf("refused: %s %s/%s", r, r.namespace, r.name)
	}
	rights := a.rights(t)
	if len(rights) < 80 {
		t.Errorf("the chart grants %d rights, want all of them to be found", len(rights))
	}
	for i := range rights {
		entry := &rights[i]
		at := slices.IndexFunc(allowed, func(r request) bool {
			isLeft := func(o right) bool { return o.text != entry.text && (!o.builtIn || !entry.kept) && o.allows(r) }
			return entry.allows(r) && needed[r.String()] != "" && !slices.ContainsFunc(rights, isLeft)
		})
		if at < 0 {
			t.Errorf("%s: no behaviour needs it, or another role has it too", entry.text)
			continue
		}
		a.awaitAnswer(t, allowed[at], true)
		a.apply(t, entry.revoked)
		a.awaitAnswer(t, allowed[at], false)
		a.apply(t, entry.granted)
		t.Logf("%s is needed: %s", entry.text, needed[allowed[at].String()])
	}
}

// awaitAnswer asks the API server whether a request is allowed, until it answers as it should.
func (a *audited) awaitAnswer(t *testing.T, r request, allowed bool) {
	t.Helper()
	kind := schema.ParseGroupResource(r.resource)
	resource, subresource, _ := strings.Cut(kind.Resource, "/")
	review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: accounts + r.account, Groups: []string{"system:authenticated", "system:serviceaccounts"},
		ResourceAttributes: &authorization.ResourceAttributes{
			Verb: r.verb, Group: kind.Group, Resource: resource, Subresource: subresource, Namespace: r.namespace,
			Name: r.name,
		},
	}}
	waitFor(t, time.Minute, fmt.Sprintf("%s %s/%s to be allowed: %t", r, r.namespace, r.name, allowed), func() error {
		answer, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review,
			metav1.CreateOptions{})
		if err == nil && answer.Status.Allowed != allowed {
			err = fmt.Errorf("the API server says %+v", answer.Status)
		}
		return err
	})
}

func (a *audited) apply(t *testing.T, text string) {
	t.Helper()
	objects, err := install.Parse([]byte(text))
	testkit.Check(t, err)
	testkit.Check(t, a.applier.Apply(t.Context(), objects))
}

func (a *audited) steps() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"start the manager":     a.startManager,
		"start the descheduler": a.startDescheduler,
		"ask the descheduler":   func(t *testing.T) { a.readMetrics(t, a.asks) },
		"rotate the certificates": func(t *testing.T) {
			text := fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, annotation.RotateCertificates)
			_, err := a.client.CoreV1().Secrets("tenon-system").Patch(t.Context(), "tenon-certificates",
				types.MergePatchType, []byte(text), metav1.PatchOptions{})
			testkit.Check(t, err)
		},
		"read the metrics": func(t *testing.T) { a.readMetrics(t, a.metrics) },
		"wait until borrows-0 and borrows-1 are bound": func(t *testing.T) {
			waitFor(t, time.Minute, "both pods to be bound", func() error {
				for _, name := range []string{"borrows-0", "borrows-1"} {
					p, err := a.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					if p.Spec.NodeName == "" {
						return fmt.Errorf("%s is not", name)
					}
				}
				return nil
			})
		},
		"start an agent": a.startAgent,
		"edit the Numatopology": func(t *testing.T) {
			waitFor(t, time.Minute, "the Numatopology", func() error {
				_, err := a.objects.Resource(nodeinfo.Resource()).Patch(t.Context(), joined, types.MergePatchType,
					[]byte(`{"spec":{"resReserved":{"cpu":"7"}}}`), metav1.PatchOptions{})
				return err
			})
		},
		"leave a Device of an earlier agent":                   func(t *testing.T) { a.writeDevice(t, "tenon-agent") },
		"write the Device as another program, again and again": a.disputeDevice,
		"start a second agent": func(t *testing.T) {
			second, err := agent.New(a.agent)
			testkit.Check(t, err)
			if err := second.Run(t.Context()); !errors.Is(err, statedir.ErrSecondAgent) {
				t.Errorf("Run of a second agent = %v, want %v", err, statedir.ErrSecondAgent)
			}
		},
		"apply the webhooks": func(t *testing.T) {
			a.apply(t, string(bytes.Join(deploy.Webhooks(), []byte("\n---\n"))))
		},
	}
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-ended)
	})
}

// argumentsOf are those that the chart gives a program.
func argumentsOf(t *testing.T, program string) []string {
	t.Helper()
	for _, text := range deploy.Workloads() {
		var d appsv1.Deployment
		if testkit.Check(t, yaml.Unmarshal(text, &d)); d.Kind == "Deployment" && d.Name == program {
			return d.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatalf("the chart has no %s", program)
	return nil
}

// freeOnEveryAddress is a port that was free a moment ago, on every address.
func freeOnEveryAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
	testkit.Check(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// startDescheduler runs one more than the cluster's, with the arguments that the chart gives it but the
// files of certificates, and asks no scheduler.
func (a *audited) startDescheduler(t *testing.T) {
	a.asks = freeOnEveryAddress(t)
	command := descheduler.NewCommand()
	command.SetArgs(append(argumentsOf(t, "tenon-descheduler"), "--kubeconfig="+a.data.Credential(cluster.Descheduler),
		"--serving-address="+a.asks, "--health-address=0", "--tls-cert-file=", "--tls-private-key-file=",
		"--scheduler-address="))
	background(t, command.ExecuteContext)
}

// startManager runs it with the arguments that the chart gives it.
func (a *audited) startManager(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quotas.yaml")
	testkit.Check(t, os.WriteFile(file, []byte("kind: ElasticQuotaArgs\ndelayEvictTime: 1s\n"), 0o600))
	ports, err := a.data.SavedPorts()
	testkit.Check(t, err)
	a.metrics = freeOnEveryAddress(t)
	command := manager.NewCommand()
	command.SetArgs(append(argumentsOf(t, "tenon-manager"), "--kubeconfig="+a.data.Credential(cluster.Manager),
		"--metrics-address="+a.metrics, "--elastic-quota-args="+file,
		"--webhook-address=127.0.0.1:"+strconv.Itoa(ports[datadir.Webhooks]),
		"--health-address=127.0.0.1:"+strconv.Itoa(ports[datadir.ManagerHealth])))
	background(t, command.ExecuteContext)
}

// readMetrics asks for metrics, as an account that may not read them.
func (a *audited) readMetrics(t *testing.T, address string) {
	t.Helper()
	token, err := a.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, port, err := net.SplitHostPort(address)
	testkit.Check(t, err)
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{NegotiatedSerializer: scheme.Codecs},
	})
	testkit.Check(t, err)
	waitFor(t, time.Minute, "a refusal", func() error {
		if err := client.Get().AbsPath("/metrics").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("an account without rights gets %w", err)
		}
		return nil
	})
}

// writeDevice applies the Device of the joined node as a field manager.
func (a *audited) writeDevice(t *testing.T, user string) {
	t.Helper()
	a.write(t, device.Resource(), user, `{"kind":"Device","spec":{"devices":[{"type":"gpu","id":"GPU-1"}]}}`)
}

func (a *audited) write(t *testing.T, kind schema.GroupVersionResource, user, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(text), &o.Object)
	o.SetAPIVersion(kind.GroupVersion().String())
	o.SetName(joined)
	if err == nil {
		options := metav1.ApplyOptions{FieldManager: user, Force: true}
		_, err = a.objects.Resource(kind).Apply(t.Context(), joined, o, options)
	}
	if err != nil {
		t.Errorf("write as %s: %v", user, err) // not the test's own goroutine
	}
}

func (a *audited) removeDevice(t *testing.T) {
	t.Helper()
	if err := a.objects.Resource(device.Resource()).Delete(t.Context(), joined, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// disputeDevice lets a program write the Device, twice with a pause between.
func (a *audited) disputeDevice(t *testing.T) {
	for _, want := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue} {
		if want == corev1.ConditionTrue {
			a.writeDevice(t, "koordlet")
		} else {
			a.removeDevice(t)
		}
		waitFor(t, time.Minute, "the condition to be "+string(want), func() error {
			n, err := a.client.CoreV1().Nodes().Get(t.Context(), joined, metav1.GetOptions{})
			testkit.Check(t, err)
			for _, c := range n.Status.Conditions {
				if string(c.Type) == event.TopologyWriterConflict.Condition() && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("the Node has %v", n.Status.Conditions)
		})
	}
}

// overtaken lets another program write right before the first request of a kind, METHOD RESOURCE.
type overtaken struct {
	http.RoundTripper
	mu     sync.Mutex // guards before
	before map[string]func()
}

func (o *overtaken) RoundTrip(r *http.Request) (*http.Response, error) {
	key := r.Method + " " + path.Base(path.Dir(r.URL.Path))
	o.mu.Lock()
	do := o.before[key]
	delete(o.before, key)
	o.mu.Unlock()
	if do != nil {
		do()
	}
	return o.RoundTripper.RoundTrip(r)
}

// startAgent runs the agent of a node with a token of its account, over a simulated kernel.
func (a *audited) startAgent(t *testing.T) {
	_, err := a.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: joined}},
		metav1.CreateOptions{})
	testkit.Check(t, err)
	file := a.data.Credential(cluster.AgentCredential(joined))
	waitFor(t, time.Minute, "the agent's token", func() error { _, err := os.Stat(file); return err })
	config, err := clientcmd.BuildConfigFromFlags("", file)
	testkit.Check(t, err)
	client, err := kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	between := rest.CopyConfig(config)
	between.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &overtaken{RoundTripper: next, before: map[string]func(){
			"PATCH noderesourcetopologies": func() {
				a.write(t, v1alpha2.Resource(), "exporter",
					`{"kind":"NodeResourceTopology","zones":[{"name":"node-0","type":"Node"}]}`)
			},
			"PUT numatopologies": func() {
				a.write(t, nodeinfo.Resource(), "other", `{"kind":"Numatopology","metadata":{"annotations":{"a":"b"}}}`)
			},
			"DELETE devices": func() {
				a.removeDevice(t)
				a.writeDevice(t, "tenon-agent")
			},
		}}
	})
	objects, err := dynamic.NewForConfig(between)
	testkit.Check(t, err)
	described, _, err := machine.Parse("xeon-2s")
	testkit.Check(t, err)
	root := host.Root{Dir: filepath.Join(t.TempDir(), "root")}
	testkit.Check(t, described.Write(root.Dir))
	topology, err := described.Topology()
	testkit.Check(t, err)
	tree, err := kernel.Open(kernel.Options{Dir: root.Cgroup(), Dialect: desired.V2, Machine: topology})
	testkit.Check(t, err)
	kubelet, err := kubeletapi.NewClient(kubeletapi.ClientOptions{
		Node: joined, Root: root, API: config, Endpoint: a.kubelet(t),
	})
	testkit.Check(t, err)
	broadcaster := events.NewBroadcaster(status.NewSink(client, joined))
	testkit.Check(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	t.Cleanup(broadcaster.Shutdown)
	a.agent = agent.Options{
		Node: joined, Root: root, Arch: described.Arch(), Client: client, Dynamic: objects, AskKubelet: kubelet,
		Switches: probe.Switches{QueryKubelet: true, CPUSetAllocator: true}, Cgroup: tree, CgroupRoot: "/",
		PublishNumatopology: true, Recorder: broadcaster.NewRecorder(scheme.Scheme, status.Controller),
	}
	first, err := agent.New(a.agent)
	testkit.Check(t, err)
	background(t, first.Run)
}

// kubelet answers /configz as a kubelet does: to those whom the API server knows and lets.
func (a *audited) kubelet(t *testing.T) string {
	t.Helper()
	certificate, key := a.data.Pair(cluster.KubeletServing)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	testkit.Check(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := rest.AnonymousClientConfig(a.config)
		who.BearerToken = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		client, err := kubernetes.NewForConfig(who)
		if err == nil {
			var answer *authorization.SelfSubjectAccessReview
			answer, err = client.AuthorizationV1().SelfSubjectAccessReviews().Create(r.Context(),
				&authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorization.ResourceAttributes{
						Verb: "get", Resource: "nodes", Subresource: "configz", Name: joined,
					},
				}}, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = errors.New("forbidden")
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		a.mu.Lock()
		a.asked = append(a.asked, request{account: "tenon-agent", verb: "get", resource: "nodes/configz", name: joined})
		a.mu.Unlock()
		fmt.Fprint(w, `{"kubeletconfig":{"cpuManagerPolicy":"none"}}`)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}
