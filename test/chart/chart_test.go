package chart

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/controlplane"
)

const namespace = "placement"

// cluster is an API server and Helm's program for it.
type cluster struct {
	program, kubeconfig, log string
	dir                      datadir.Dir
	server                   kubeconf.Cluster
	ports                    *datadir.Ports
	client                   kubernetes.Interface
	objects                  dynamic.Interface
}

func start(t *testing.T) *cluster {
	t.Helper()
	program, err := filepath.Abs("../../.cache/helm")
	testkit.Check(t, err)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "helm.sh/helm/v3/cmd/helm")
	build.Dir = "../../hack/tools/helm"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build helm: %v\n%s", err, out)
	}
	p := controlplane.Start(t)
	c := &cluster{
		program: program, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), log: p.Log, dir: p.Dir,
		server: p.Server, ports: p.Ports,
	}
	testkit.Check(t, kubeconf.WriteCertificate(c.kubeconfig, p.Server, p.Admin))
	c.client, err = kubernetes.NewForConfig(p.Config)
	testkit.Check(t, err)
	c.objects, err = dynamic.NewForConfig(p.Config)
	testkit.Check(t, err)
	return c
}

// helm runs Helm; the error contains what it says.
func (c *cluster) helm(ctx context.Context, arguments ...string) error {
	const none = "/nonexistent"
	command := exec.CommandContext(ctx, c.program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HELM_CACHE_HOME="+none, "HELM_CONFIG_HOME="+none,
		"HELM_DATA_HOME="+none)
	out, err := command.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(bytes.TrimSpace(out))))
	}
	return nil
}

// applyFolder is kubectl apply -k.
func (c *cluster) applyFolder(t *testing.T, folder string) {
	t.Helper()
	cmdutil.BehaviorOnFatal(func(text string, _ int) { t.Errorf("kubectl: %s", text) })
	defer cmdutil.DefaultBehaviorOnFatal()
	var out bytes.Buffer
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &c.kubeconfig
	command := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
		Arguments: []string{"kubectl"}, ConfigFlags: flags,
		IOStreams: genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out},
	})
	command.SetArgs([]string{"apply", "-k", folder})
	if err := command.ExecuteContext(t.Context()); err != nil || t.Failed() {
		t.Fatalf("kubectl apply -k: %v\n%s", err, out.String())
	}
}

func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// TestHelm goes through the life of a release. A process can have only one API server.
func TestHelm(t *testing.T) {
	c := start(t)
	chart := func(verb, release, namespace string, more ...string) error {
		return c.helm(t.Context(), append([]string{
			verb, release, "../../deploy/chart", "--namespace", namespace, "--create-namespace",
		}, more...)...)
	}
	t.Run("installations that are refused leave nothing", func(t *testing.T) { c.refusesInstallations(t, chart) })

	testkit.Check(t, chart("install", "tenon", namespace))
	t.Run("a second release", func(t *testing.T) {
		refused(t, chart("install", "other", "elsewhere"), "tenon", `must equal "other"`)
	})
	t.Run("a manager that does not answer", c.withoutManager)
	t.Run("a manager that starts", func(t *testing.T) { c.startsManager(t, chart) })
	c.hasCertificates(t)
	quotas := c.objects.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace("default")
	c.withoutWebhooks(t, func() {
		await(t, "a quota, once the API server sees that", func(ctx context.Context) (bool, error) {
			_, err := quotas.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupName + "/v1alpha1", "kind": "ElasticQuota",
				"metadata": map[string]any{"name": "kept"}, "spec": map[string]any{},
			}}, metav1.CreateOptions{})
			return err == nil, nil
		})
	})
	testkit.Check(t, chart("upgrade", "tenon", namespace, "--set", "scheduler.replicas=3"))
	if ok, err := c.published(t.Context()); err != nil || !ok {
		t.Errorf("after an upgrade the webhooks have the authorities of their certificates: %v, %v", ok, err)
	}
	c.replicas(t, 3)
	t.Run("a revision that does not exist", func(t *testing.T) {
		refused(t, c.helm(t.Context(), "rollback", "tenon", "99", "--namespace", namespace), "99")
	})
	testkit.Check(t, c.helm(t.Context(), "rollback", "tenon", "--namespace", namespace))
	c.replicas(t, 2)

	if there := c.labelled(t); len(there) < 40 {
		t.Errorf("before uninstall %d objects have the chart's label: %v", len(there), there)
	}
	testkit.Check(t, c.helm(t.Context(), "uninstall", "tenon", "--namespace", namespace))
	if _, err := quotas.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of a CRD after uninstall: %v", err)
	}
	if left := c.labelled(t); len(left) > 0 {
		t.Errorf("after uninstall remain %v", left)
	}
	// Who installs again finds the CRDs of the release that went.
	testkit.Check(t, chart("install", "tenon", namespace))
	testkit.Check(t, c.helm(t.Context(), "uninstall", "tenon", "--namespace", namespace))

	t.Run("the plain manifests become a release", func(t *testing.T) {
		c.applyFolder(t, "../../deploy/manifests")
		if there := c.labelled(t); len(there) < 40 {
			t.Errorf("%d objects have the label of the manifests: %v", len(there), there)
		}
		refused(t, chart("install", "tenon", "tenon-system"), "invalid ownership metadata")
		testkit.Check(t, chart("install", "tenon", "tenon-system", "--take-ownership"))
	})
}

// hasCertificates checks what the scheduler's pods mount.
func (c *cluster) hasCertificates(t *testing.T) {
	t.Helper()
	secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), "tenon-certificates", metav1.GetOptions{})
	testkit.Check(t, err)
	if _, err := tls.X509KeyPair(secret.Data["scheduler.crt"], secret.Data["scheduler.key"]); err != nil {
		t.Errorf("the scheduler's pair: %v", err)
	}
}

// published reports whether every webhook has the authorities that the manager publishes.
func (c *cluster) published(ctx context.Context) (bool, error) {
	shown, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, "tenon-ca", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var clients []admissionregistrationv1.WebhookClientConfig
	api := c.client.AdmissionregistrationV1()
	v, err := api.ValidatingWebhookConfigurations().Get(ctx, "tenon", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for i := range v.Webhooks {
		clients = append(clients, v.Webhooks[i].ClientConfig)
	}
	m, err := api.MutatingWebhookConfigurations().Get(ctx, "tenon", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for i := range m.Webhooks {
		clients = append(clients, m.Webhooks[i].ClientConfig)
	}
	return !slices.ContainsFunc(clients, func(w admissionregistrationv1.WebhookClientConfig) bool {
		return len(w.CABundle) == 0 || string(w.CABundle) != shown.Data["ca.crt"]
	}), nil
}

// withoutWebhooks does what they would refuse while no manager answers.
func (c *cluster) withoutWebhooks(t *testing.T, do func()) {
	t.Helper()
	set := func(policy admissionregistrationv1.FailurePolicyType) {
		webhooks := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		w, err := webhooks.Get(t.Context(), "tenon", metav1.GetOptions{})
		testkit.Check(t, err)
		for i := range w.Webhooks {
			w.Webhooks[i].FailurePolicy = &policy
		}
		_, err = webhooks.Update(t.Context(), w, metav1.UpdateOptions{})
		testkit.Check(t, err)
	}
	set(admissionregistrationv1.Ignore)
	do()
	set(admissionregistrationv1.Fail)
}

func (c *cluster) replicas(t *testing.T, want int32) {
	t.Helper()
	d, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), "tenon-scheduler", metav1.GetOptions{})
	testkit.Check(t, err)
	if *d.Spec.Replicas != want {
		t.Errorf("the scheduler has %d replicas, want %d", *d.Spec.Replicas, want)
	}
}

// labelled returns what carries the label of the chart, without CRDs and what controllers make of it.
func (c *cluster) labelled(t *testing.T) (names []string) {
	t.Helper()
	lists, err := c.client.Discovery().ServerPreferredResources()
	testkit.Check(t, err)
	for _, list := range lists {
		for _, r := range list.APIResources {
			verbs := strings.Join(r.Verbs, " ")
			if !strings.Contains(verbs, "list") || r.Kind == "CustomResourceDefinition" || r.Kind == "Pod" {
				continue
			}
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			testkit.Check(t, err)
			found, err := c.objects.Resource(version.WithResource(r.Name)).List(t.Context(),
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=tenon"})
			testkit.Check(t, err)
			for _, o := range found.Items {
				if len(o.GetOwnerReferences()) == 0 {
					names = append(names, o.GetKind()+" "+o.GetName())
				}
			}
		}
	}
	return names
}
