package rights

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/yaml"

	scheduler "github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sim/shadow"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
	"github.com/tenon-project/tenon/test/controlplane"
)

// TestShadowReadsAndNeedsEveryRight follows an API server without Tenon's kinds, with the role that tenon shadow
// prints.
func TestShadowReadsAndNeedsEveryRight(t *testing.T) {
	p := controlplane.Start(t)
	c := &cluster{server: p.Server, admin: asUser(t, p.Config)}
	c.node(t, "a")
	var role rbacv1.ClusterRole
	testkit.Check(t, yaml.UnmarshalStrict([]byte(shadow.Role), &role))
	c.grant(t, "shadow", role.Rules)
	want := map[string]string{"no-rights": ""} // the errors of users, by name; "" for any right that is missing
	for i, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
			t.Errorf("the role has more than reading: %v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name := strings.TrimSuffix(resource+"."+group, ".")
				want["without-"+name] = name + " is forbidden: the right to watch them is missing"
				c.grant(t, "without-"+name, without(role.Rules, i, group, resource))
			}
		}
	}
	users := slices.Sorted(maps.Keys(want))
	text, err := c.child(t, usersKey+"="+strings.Join(users, " ")).Output()
	testkit.Check(t, err)
	for line := range strings.Lines(string(text)) {
		user, said, found := strings.Cut(strings.TrimSpace(line), "\t")
		if text, asked := want[user]; found && asked {
			delete(want, user)
			said = strings.Replace(said, "the right to list", "the right to watch", 1) // whichever is asked for first
			if text != said && (text != "" || !strings.Contains(said, "is forbidden: the right to")) {
				t.Errorf("user %s: %s, want %s", user, said, text)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no answer for %v in\n%s", want, text)
	}
	c.compare(t)
}

// without returns rules without one resource of one group.
func without(rules []rbacv1.PolicyRule, i int, group, resource string) []rbacv1.PolicyRule {
	others := func(all []string, one string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
	}
	rest, same := rules[i], rules[i]
	rest.Resources, same.APIGroups = others(rest.Resources, resource), others(same.APIGroups, group)
	return slices.DeleteFunc(append(slices.Delete(slices.Clone(rules), i, i+1), rest, same),
		func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 || len(r.APIGroups) == 0 })
}

// usersKey and verbKey are variables of a child of the test: the control plane has set feature gates in this process
// that no scheduler may have.
const (
	usersKey = "TENON_TEST_SHADOW_USERS"
	verbKey  = "TENON_TEST_SHADOW_VERB"
	stockKey = "TENON_TEST_SHADOW_STOCK"
)

func (c *cluster) child(t *testing.T, variable string) *exec.Cmd {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	tls := c.admin.config.TLSClientConfig
	testkit.Check(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: c.admin.config.Host, CertificateAuthorityData: tls.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData,
		}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, config))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestShadowProcess$")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, variable)
	return cmd
}

// TestShadowProcess is the child.
func TestShadowProcess(t *testing.T) {
	if os.Getenv(stockKey) != "" {
		stock := kubescheduler.NewSchedulerCommand()
		stock.SetArgs([]string{
			"--kubeconfig=" + os.Getenv("KUBECONFIG"), "--leader-elect=false", "--secure-port=0",
			"--authorization-kubeconfig=" + os.Getenv("KUBECONFIG"),
			"--authentication-kubeconfig=" + os.Getenv("KUBECONFIG"),
		})
		if err := stock.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if args := os.Getenv(verbKey); args != "" {
		verb := shadow.NewCommand(genericiooptions.IOStreams{Out: os.Stdout, ErrOut: os.Stderr})
		verb.SetArgs(strings.Fields(args))
		if err := verb.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range strings.Fields(os.Getenv(usersKey)) {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		testkit.Check(t, err)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusedLate{next} })
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		ctx, stop := context.WithTimeout(t.Context(), patience)
		s, err := scheduler.NewShadow(ctx, config, 1)
		if err == nil {
			err = s.Run(ctx, stop, nil)
		}
		stop()
		fmt.Printf("%s\t%v\n", user, err)
	}
}

// refusedLate is a transport whose refusals come when all else was read.
type refusedLate struct{ http.RoundTripper }

func (r refusedLate) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(q)
	if err == nil && answer.StatusCode == http.StatusForbidden {
		time.Sleep(time.Second)
	}
	return answer, err
}

// grant gives a user rules, and waits until the API server knows.
func (c *cluster) grant(t *testing.T, user string, rules []rbacv1.PolicyRule) {
	t.Helper()
	roles := c.admin.typed.RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: slices.DeleteFunc(slices.Clone(rules),
			func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 }),
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	last := rules[len(rules)-1]
	c.await(t, "the API server knows the rights of "+user, func(ctx context.Context) error {
		answer, err := c.admin.typed.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorization.ResourceAttributes{
					Group: last.APIGroups[0], Resource: last.Resources[0], Verb: "list",
				},
			}}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
}

// compare binds pods to a node and looks at what the shadow says.
func (c *cluster) compare(t *testing.T) {
	_, err := c.admin.typed.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	bind := func(name, cpus string) {
		pod := testobject.Pod("default/"+name, testobject.Container("c", "x"), testobject.Scheduler("stock"),
			testobject.Requests("cpu", cpus))
		pod.UID, pod.Spec.AutomountServiceAccountToken = "", new(bool)
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // the node is not ready
		pods := c.admin.typed.CoreV1().Pods("default")
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		testkit.Check(t, err)
		testkit.Check(t, pods.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "a"},
		}, metav1.CreateOptions{}))
	}
	bind("before", "1")
	verb := c.child(t, verbKey+"=--as shadow --count 2 -o json")
	said, err := verb.StderrPipe()
	testkit.Check(t, err)
	var out bytes.Buffer
	verb.Stdout = &out
	testkit.Check(t, verb.Start())
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Waits for pods") {
			bind("fits", "1")
			bind("too-large", "200")
		}
	}
	testkit.Check(t, verb.Wait())
	var report view.ShadowReport
	testkit.Check(t, json.NewDecoder(&out).Decode(&report))
	var got []string
	for _, p := range report.Pods {
		got = append(got, fmt.Sprintf("%s %s %s", p.Pod, p.Bound.Node, p.Outcome))
	}
	if want := []string{"default/fits a Same", "default/too-large a Nowhere"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: %+v", got, want, report.Pods)
	}
	events, err := c.admin.typed.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("%v; %d Events, want none", err, len(events.Items))
	}
}
