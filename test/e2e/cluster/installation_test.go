//go:build linux && e2e_install

package installed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/testkit/page"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// testCase is a part of the life of an installation. It needs what the parts before it leave.
type testCase struct {
	name string
	run  func(*testing.T)
}

// TestInstallation goes through the life of one installation.
func TestInstallation(t *testing.T) {
	c := start(t)
	cases := []testCase{
		{"install with default values", c.install},
		{"components have no capability and the pod security level that they claim", c.areRestricted},
		{"network policies allow the ports that are open", c.listenAsAllowed},
		{"pods of each class land where simulate said", c.landAsSimulated},
		{"leaders are killed under bound pods", c.outliveLeaders},
		{"certificates rotate", c.rotateCertificates},
		{"commands of the pages work on an installation", c.plays(page.Installed)},
		{"a console serves who signs in", c.serveConsole},
	}
	if l := (&leaving{cluster: c}); !testing.Short() {
		cases = append([]testCase{{"the node before the installation", l.record}}, cases...)
		cases = append(cases,
			testCase{"agents serve metrics to those who may read them", c.serveMetrics},
			testCase{"an uninstallation leaves no pod unable to start", l.uninstall},
			testCase{"tenon leave makes the node as it was before", l.leave},
			testCase{"commands of the pages install, upgrade and remove", c.plays(page.Release)},
			testCase{"beside Koordinator v1.6.0", func(t *testing.T) { c.beside(t, "v1.6.0") }},
			testCase{"beside Koordinator v1.8.0", func(t *testing.T) { c.beside(t, "v1.8.0") }})
	}
	c.inOrder(t, cases)
}

// TestSecondNode installs Tenon again, and then adds a virtual machine.
func TestSecondNode(t *testing.T) {
	if testing.Short() {
		fmt.Println("left out in short mode:", t.Name()+", which takes a virtual machine (make test-cluster)")
		t.Skip("it takes a virtual machine")
	}
	c := start(t)
	life := t
	joins := func(t *testing.T) { c.joinGuest(t, life) }
	c.inOrder(t, []testCase{
		{"install again, before the virtual machine", c.install},
		{"a virtual machine joins and gets its agent", joins},
		{"pods of the virtual machine land where simulate said", c.landOnGuest},
		{"the agent of the virtual machine is killed under bound pods", c.outliveGuestAgent},
		{"upgrade and rollback move no pod", c.upgrade},
	})
}

func (c *cluster) inOrder(t *testing.T, cases []testCase) {
	t.Helper()
	for _, one := range cases {
		if !t.Run(one.name, func(t *testing.T) { stage.Count(t); one.run(t) }) {
			c.describe(t)
			return // the others need what this one leaves
		}
	}
}

// statusAnswer is what the tests read of tenon status.
type statusAnswer struct {
	Findings []struct{ Check, Status, Found, Where string }
}

// isWell asks tenon status, which waits, and wants no finding but good ones, and warnings of the checks that are named.
func (c *cluster) isWell(t *testing.T, warn ...string) {
	t.Helper()
	var answer statusAnswer
	c.tenon(t, &answer, "status", "--wait", "3m")
	checks := map[string]bool{}
	for _, f := range answer.Findings {
		checks[f.Check] = true
		if f.Status != "ok" && !(f.Status == "warn" && slices.Contains(warn, f.Check)) {
			t.Errorf("%s %s: %s, %s", f.Check, f.Where, f.Status, f.Found)
		}
	}
	for _, want := range []string{
		scheduler, manager, agent, scheduler + "-leader", manager + "-leader", "versions", "diagnostics", "webhooks",
		"certificate", "agents", "topology",
	} {
		if !checks[want] {
			t.Errorf("tenon status does not check %s: %v", want, answer)
		}
	}
}

func (c *cluster) install(t *testing.T) {
	c.helm(t, "install", "tenon", filepath.Join(c.root, "deploy/chart"), "--create-namespace")
	c.isWell(t)
	for component, want := range map[string]int{scheduler: 2, manager: 2, agent: 1} {
		pods := c.pods(t, component)
		if len(pods) != want {
			t.Errorf("%s has %d pods, want %d", component, len(pods), want)
		}
		most := int32(0)
		if component == agent {
			most = 1 // it begins anew when it learns that the kubelet's cgroupRoot is the stage's
		}
		for i := range pods {
			if restarts := pods[i].Status.ContainerStatuses[0].RestartCount; !isReady(&pods[i]) || restarts > most {
				t.Errorf("%s was started %d times more: %s", component, restarts, state(&pods[i]))
			}
			log, err := c.client.CoreV1().Pods(home).GetLogs(pods[i].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
			testkit.Check(t, err)
			for line := range strings.Lines(string(log)) {
				if strings.Contains(line, "forbidden") {
					t.Errorf("%s lacks a right: %s", pods[i].Name, line)
				}
			}
		}
	}
}

// describe shows what a person would look at.
func (c *cluster) describe(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if !isReady(p) {
			t.Log(state(p))
		}
		if p.Namespace == home {
			for _, before := range []bool{true, false} {
				options := &corev1.PodLogOptions{Previous: before}
				text, err := c.client.CoreV1().Pods(home).GetLogs(p.Name, options).DoRaw(ctx)
				text = text[max(0, len(text)-1500):]
				t.Logf("log of %s (before its last start: %t; %v):\n%s", p.Name, before, err, text)
			}
		}
	}
	events, err := c.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	testkit.Check(t, err)
	for _, e := range events.Items {
		t.Logf("%s %s: %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

// isConfined reads what the kernel says of the processes of a component's pod, and returns one of them.
func (c *cluster) isConfined(t *testing.T, p *corev1.Pod, user string) (pid int) {
	_, pids, err := c.processes(p)
	testkit.Check(t, err)
	for _, pid = range pids {
		const none = "0000000000000000"
		for key, want := range map[string]string{
			"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
			"NoNewPrivs": "1", "Seccomp": "2", "Uid": strings.Join([]string{user, user, user, user}, "\t"),
		} {
			if got, err := status(pid, key); err != nil || got != want {
				t.Errorf("%s: %s is %q, want %q: %v", p.Name, key, got, want, err)
			}
		}
	}
	return pid
}

// areRestricted reads what the kernel says of the components' processes, and asks the API server whether it would take
// their pods under each pod security level.
func (c *cluster) areRestricted(t *testing.T) {
	for _, component := range []string{scheduler, manager, agent} {
		for _, p := range c.pods(t, component) {
			user := "65532"
			if component == agent {
				user = "0"
			}
			c.isConfined(t, &p, user)
		}
	}
	for level, takes := range map[string]map[string]bool{
		"restricted": {scheduler: true, manager: true, agent: false},
		"baseline":   {scheduler: true, manager: true, agent: false},
		"privileged": {scheduler: true, manager: true, agent: true},
	} {
		namespace := "level-" + level
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}}, metav1.CreateOptions{})
		testkit.Check(t, err)
		stage.Await(t, "the account of "+namespace, func() error {
			_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
		for component, want := range takes {
			spec := c.pods(t, component)[0].Spec
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component}, Spec: spec}
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, p.Spec.NodeName = "default", "", ""
			_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), p,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if want && err != nil || !want && (err == nil || !strings.Contains(err.Error(), "violates PodSecurity")) {
				t.Errorf("%s under the level %s: %v, want it taken: %t", component, level, err, want)
			}
		}
	}
}

// listenAsAllowed compares the ports that the pods' processes listen at with those of the network policies and, for the
// kubelet, of the probes.
func (c *cluster) listenAsAllowed(t *testing.T) {
	for _, component := range []string{scheduler, manager} {
		policy, err := c.client.NetworkingV1().NetworkPolicies(home).Get(t.Context(), component, metav1.GetOptions{})
		testkit.Check(t, err)
		want := map[int]bool{}
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				want[p.Port.IntValue()] = true
			}
		}
		for _, p := range c.pods(t, component) {
			box := p.Spec.Containers[0]
			for _, probe := range []*corev1.Probe{box.StartupProbe, box.ReadinessProbe, box.LivenessProbe} {
				for _, port := range box.Ports {
					if port.Name == probe.HTTPGet.Port.String() {
						want[int(port.ContainerPort)] = true
					}
				}
			}
			_, pids, err := c.processes(&p)
			testkit.Check(t, err)
			got := map[int]bool{}
			for _, at := range listeners(t, pids[0]) {
				got[int(at.Port())] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: ports (-policy and probes +open):\n%s", p.Name, diff)
			}
		}
	}
	// The agent has no policy: it is on the host's network, at loopback alone.
	for _, p := range c.pods(t, agent) {
		_, pids, err := c.processes(&p)
		testkit.Check(t, err)
		found := listeners(t, pids[0])
		for _, at := range found {
			if !at.Addr().IsLoopback() {
				t.Errorf("the agent listens at %s", at)
			}
		}
		if len(found) == 0 {
			t.Error("the agent listens nowhere: its health cannot be asked")
		}
	}
}

// workload is a pod of a class of Tenon, "" for none. cpu may be empty.
func workload(name, class, cpu string) *corev1.Pod {
	p := object.Pod(work+"/"+name, object.Scheduler("tenon-scheduler"), object.Grace(0), object.Class(class),
		object.Probe)
	if cpu != "" {
		object.Requests("cpu", cpu, "memory", "32Mi")(p)
		if class == "LSE" || class == "LSR" {
			object.Limits("cpu", cpu, "memory", "32Mi")(p)
		}
	}
	return p
}

// prediction is what the tests read of tenon simulate.
type prediction struct {
	Pods []struct{ Namespace, Name, State, Node, CPUSet string }
}

// simulate asks what would become of pods in the cluster as it is, by name: "NODE CPUS".
func (c *cluster) simulate(t *testing.T, pods ...*corev1.Pod) map[string]string {
	t.Helper()
	var all []any
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range nodes.Items {
		nodes.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		all = append(all, &nodes.Items[i])
	}
	topologies, err := c.objects.Resource(v1alpha2.Resource()).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range topologies.Items {
		all = append(all, &topologies.Items[i])
	}
	there, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range there.Items {
		pods = append(pods, &there.Items[i])
	}
	for _, p := range pods {
		p = p.DeepCopy()
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		all = append(all, p)
	}
	var input strings.Builder
	for _, o := range all {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		testkit.Check(t, err)
		unstructured.RemoveNestedField(fields, "metadata", "managedFields")
		text, err := yaml.Marshal(fields)
		testkit.Check(t, err)
		input.WriteString("---\n" + string(text))
	}
	var answer prediction
	c.tenon(t, &answer, "simulate", "-f", c.Write("simulate.yaml", input.String()))
	predicted := map[string]string{}
	for _, p := range answer.Pods {
		if p.Namespace == work && p.State == "Scheduled" {
			predicted[p.Name] = p.Node + " " + p.CPUSet
		}
	}
	return predicted
}

// createAsPredicted creates pods and compares where they land with what simulate said before.
func (c *cluster) createAsPredicted(t *testing.T, pods ...*corev1.Pod) []*corev1.Pod {
	t.Helper()
	want := c.simulate(t, pods...)
	running := c.create(t, pods...)
	got := map[string]string{}
	for _, p := range running {
		got[p.Name] = p.Spec.NodeName + " " + allocated(t, p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("where pods are (-simulated +real):\n%s", diff)
	}
	return running
}

// allocated returns the CPUs that the scheduler gave a pod, "" for none of its own.
func allocated(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	text, ok := p.Annotations[annotation.ResourceStatusKey]
	if !ok {
		return ""
	}
	status, _, err := annotation.ParseResourceStatus(text)
	testkit.Check(t, err)
	return status.CPUSet
}

// other is the CPU of this machine that is not the one.
func other(cpu string) string { return map[string]string{"0": "1", "1": "0"}[cpu] }

// landAsSimulated leaves pods of all classes but LSE behind.
func (c *cluster) landAsSimulated(t *testing.T) {
	lse := c.createAsPredicted(t, workload("lse", "LSE", "1"))
	beside := c.createAsPredicted(t, workload("best-effort", "BE", ""), workload("plain", "", "10m"),
		workload("system", "SYSTEM", "10m"))
	own := allocated(t, lse[0])
	c.holds(t, map[*corev1.Pod]string{lse[0]: own, beside[0]: other(own), beside[1]: other(own), beside[2]: other(own)})
	c.remove(t, lse[0], beside[2])
	c.holds(t, map[*corev1.Pod]string{beside[0]: "0-1", beside[1]: "0-1"})
	c.createAsPredicted(t, workload("lsr", "LSR", "1"), workload("ls", "LS", "50m"))
	c.holds(t, c.bound(t))
}

// bound returns the pods that the first case left, with their CPUs: the LSR pod's are its own, which BE pods may use.
func (c *cluster) bound(t *testing.T) map[*corev1.Pod]string {
	t.Helper()
	pods := c.workloads(t, nodeName, "best-effort", "ls", "lsr", "plain")
	own := allocated(t, pods["lsr"])
	return map[*corev1.Pod]string{
		pods["lsr"]: own, pods["best-effort"]: "0-1", pods["ls"]: other(own), pods["plain"]: other(own),
	}
}

// workloads returns the pods of the tests on a node by name, and wants those that are named.
func (c *cluster) workloads(t *testing.T, node string, want ...string) map[string]*corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(work).List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	testkit.Check(t, err)
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(pods))); diff != "" {
		t.Fatalf("pods on %s (-want +got):\n%s", node, diff)
	}
	return pods
}

// holder returns who leads a component, and in which pod.
func (c *cluster) holder(t *testing.T, component string) (identity, pod string, err error) {
	lease, err := c.client.CoordinationV1().Leases(home).Get(t.Context(), component, metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", "", fmt.Errorf("no %s leads", component)
	}
	pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	return *lease.Spec.HolderIdentity, pod, nil
}

// kill ends the processes of a pod as a crash does.
func (c *cluster) kill(t *testing.T, name string) {
	t.Helper()
	p, err := c.client.CoreV1().Pods(home).Get(t.Context(), name, metav1.GetOptions{})
	testkit.Check(t, err)
	_, pids, err := c.processes(p)
	testkit.Check(t, err)
	for _, pid := range pids {
		testkit.Check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// outliveLeaders kills the replicas that lead and the agent at once: others lead, and a pod that is created then runs.
func (c *cluster) outliveLeaders(t *testing.T) {
	end := c.keep(t, c.bound(t))
	killed := map[string]string{}
	for _, component := range []string{scheduler, manager} {
		identity, pod, err := c.holder(t, component)
		testkit.Check(t, err)
		killed[component] = identity
		c.kill(t, pod)
	}
	c.kill(t, c.pods(t, agent)[0].Name)
	for component, before := range killed {
		stage.Await(t, component+" to have another leader", func() error {
			now, _, err := c.holder(t, component)
			if err == nil && now == before {
				err = fmt.Errorf("%s still has the lease", now)
			}
			return err
		})
	}
	c.isWell(t)
	c.remove(t, c.create(t, workload("later", "LS", "10m"))...)
	end()
}

// certificates reads what the manager keeps: the certificate of a server and all authorities.
func (c *cluster) certificates(t *testing.T, server string) (own *x509.Certificate, authorities []byte) {
	t.Helper()
	secret, err := c.client.CoreV1().Secrets(home).Get(t.Context(), "tenon-certificates", metav1.GetOptions{})
	testkit.Check(t, err)
	block, _ := pem.Decode(secret.Data[server+".crt"])
	own, err = x509.ParseCertificate(block.Bytes)
	testkit.Check(t, err)
	return own, secret.Data["ca.crt"]
}

// trusts reports whether authorities vouch for a certificate of a component's Service.
func trusts(authorities []byte, own *x509.Certificate, component string) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return errors.New("no authorities")
	}
	_, err := own.Verify(x509.VerifyOptions{Roots: pool, DNSName: component + "." + home + ".svc"})
	return err
}

// served returns the certificate that a pod serves.
func served(ctx context.Context, p *corev1.Pod, port int) (*x509.Certificate, error) {
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 2 * time.Second},
		Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its caller looks at what is served
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(p.Status.PodIP, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// rotateCertificates has new ones made at once. All the time the webhooks answer, and no pod is started again.
func (c *cluster) rotateCertificates(t *testing.T) {
	ports := map[string]int{"manager": 9443, "scheduler": 10259}
	before := map[string]*x509.Certificate{}
	for server := range ports {
		before[server], _ = c.certificates(t, server)
	}
	restarts := c.restarts(t)
	answered := c.keepAsking(t)
	_, err := c.client.CoreV1().Secrets(home).Patch(t.Context(), "tenon-certificates", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"tenon.sh/rotate-certificates":"now"}}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	for server, port := range ports {
		component := "tenon-" + server
		stage.Await(t, "another certificate of "+component, func() error {
			now, authorities := c.certificates(t, server)
			if now.Equal(before[server]) {
				return errors.New("it is the old one")
			}
			hooks, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "tenon",
				metav1.GetOptions{})
			testkit.Check(t, err)
			asked := hooks.Webhooks[0].ClientConfig.CABundle // what the API server accepts of a replica
			for which, one := range map[string]*x509.Certificate{"old": before[server], "new": now} {
				if err := errors.Join(trusts(authorities, one, component), trusts(asked, one, component)); err != nil {
					t.Fatalf("the %s certificate of %s is not trusted: %v", which, component, err)
				}
			}
			for _, p := range c.pods(t, component) {
				if found, err := served(t.Context(), &p, port); err != nil || !found.Equal(now) {
					return errors.Join(errors.New(p.Name+" does not serve it"), err)
				}
			}
			return nil
		})
	}
	answered()
	if diff := cmp.Diff(restarts, c.restarts(t)); diff != "" {
		t.Errorf("restarts of pods (-before +after):\n%s", diff)
	}
	c.isWell(t)
}

// monitor is a kind of the Prometheus operator, as the API server needs to know it.
const monitor = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
      x-kubernetes-preserve-unknown-fields: true}}}
`

// serveMetrics switches monitoring on: agents are asked at a port of their node, with a token.
func (c *cluster) serveMetrics(t *testing.T) {
	for kind, plural := range map[string]string{
		"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules",
	} {
		crd := &unstructured.Unstructured{}
		testkit.Check(t, yaml.Unmarshal(fmt.Appendf(nil, monitor, kind, plural), &crd.Object))
		_, err := c.objects.Resource(schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		}).Create(t.Context(), crd, metav1.CreateOptions{})
		testkit.Check(t, err)
		kind := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: plural}
		stage.Await(t, plural+" to be served", func() error {
			_, err := c.objects.Resource(kind).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	end := c.keep(t, c.bound(t))
	c.helm(t, "upgrade", "tenon", filepath.Join(c.root, "deploy/chart"), "--reuse-values", "--set",
		"monitoring.enabled=true")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}
	_, err := c.client.CoreV1().ServiceAccounts(work).Create(t.Context(), account, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenon-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: work, Name: account.Name}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	tokens := map[string]string{"": "", "forged": "forged"}
	for _, name := range []string{"default", account.Name} {
		token, err := c.client.CoreV1().ServiceAccounts(work).CreateToken(t.Context(), name,
			&authentication.TokenRequest{}, metav1.CreateOptions{})
		testkit.Check(t, err)
		tokens[name] = token.Status.Token
	}
	for who, want := range map[string]int{
		"": http.StatusUnauthorized, "forged": http.StatusUnauthorized,
		"default": http.StatusForbidden, account.Name: http.StatusOK,
	} {
		stage.Await(t, fmt.Sprintf("metrics for %q", who), func() error {
			status, text, err := metrics(t.Context(), tokens[who])
			if err == nil && (status != want || (want == http.StatusOK) != strings.Contains(text, "\ntenon_agent_")) {
				err = fmt.Errorf("HTTP status %d with %d bytes, want %d", status, len(text), want)
			}
			return err
		})
	}
	c.isWell(t)
	end()
}

// metrics asks the agent of this machine for its metrics, with a token.
func metrics(ctx context.Context, token string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+stage.NodeAddress+":10272/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // an agent signs it itself
	}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// restarts returns how often containers of the components were started again, by pod.
func (c *cluster) restarts(t *testing.T) map[string]int32 {
	t.Helper()
	found := map[string]int32{}
	for _, component := range []string{scheduler, manager, agent} {
		for _, p := range c.pods(t, component) {
			found[p.Name] = p.Status.ContainerStatuses[0].RestartCount
		}
	}
	return found
}

// keepAsking asks the webhooks about a pod that they must refuse, until the function that it returns is called, which
// fails the test where one did not answer.
func (c *cluster) keepAsking(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		for asked := 0; ; asked++ {
			_, err := c.client.CoreV1().Pods(work).Create(ctx, workload("refused", "LSR", ""),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case ctx.Err() != nil && asked > 0:
				result <- nil
				return
			case err == nil || !strings.Contains(err.Error(), `.tenon.sh" denied the request`):
				result <- fmt.Errorf("question %d: %w", asked, errors.Join(errors.New("not refused by a webhook"), err))
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		testkit.Check(t, <-result)
	}
}
