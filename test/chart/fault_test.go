package chart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/cli"
	manager "github.com/tenon-project/tenon/internal/control/app"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// release runs a verb of Helm with the chart.
type release func(verb, name, namespace string, more ...string) error

func await(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, done)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// refusesInstallations checks what is refused before there is a release, and that none of it leaves an object.
func (c *cluster) refusesInstallations(t *testing.T, helm release) {
	for name, test := range map[string]struct {
		more []string
		want string
	}{
		"an unknown value": {
			[]string{"--set", "schedular.replicas=3"}, "additional properties 'schedular' not allowed",
		},
		"a CRD to skip that does not exist": {
			[]string{"--set", "crds.skip={jobs.batch}"}, "jobs.batch is not a CustomResourceDefinition",
		},
		"a user without rights": {
			[]string{"--kube-as-user", "guest"}, `"guest" cannot`,
		},
	} {
		t.Run(name, func(t *testing.T) { refused(t, helm("install", "tenon", namespace, test.more...), test.want) })
	}
	t.Run("a CRD of another owner", func(t *testing.T) {
		const name = "podgroups.scheduling.x-k8s.io"
		objects, err := install.Parse(deploy.CRDs()...)
		testkit.Check(t, err)
		crds := c.objects.Resource(apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions"))
		for _, o := range objects {
			if o.GetName() == name {
				o.SetLabels(nil)
				_, err := crds.Create(t.Context(), o, metav1.CreateOptions{})
				testkit.Check(t, err)
			}
		}
		refused(t, helm("install", "tenon", namespace), "invalid ownership metadata", name)
		testkit.Check(t, helm("install", "tenon", namespace, "--set", "crds.skip={"+name+"}", "--dry-run=server"))
		o, err := crds.Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		if len(o.GetLabels()) > 0 {
			t.Errorf("the CRD has got the labels %v", o.GetLabels())
		}
		testkit.Check(t, crds.Delete(t.Context(), name, metav1.DeleteOptions{}))
		await(t, "the CRD is gone", func(ctx context.Context) (bool, error) {
			_, err := crds.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	})
	t.Run("a store that is full", func(t *testing.T) {
		c.full(t, func() { refused(t, helm("install", "tenon", namespace), "database space exceeded") })
	})
	if there := c.labelled(t); len(there) > 0 {
		t.Errorf("installations that were refused leave %v", there)
	}
}

// full makes etcd refuse whatever needs room while do runs, as it does at its quota.
func (c *cluster) full(t *testing.T, do func()) {
	t.Helper()
	socket, err := c.dir.Socket("etcd.sock")
	testkit.Check(t, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	store := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer store.CloseIdleConnections()
	alarm := func(action string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://etcd/v3/maintenance/alarm",
			strings.NewReader(`{"action":"`+action+`","alarm":"NOSPACE"}`))
		testkit.Check(t, err)
		response, err := store.Do(request)
		testkit.Check(t, err)
		text, err := io.ReadAll(response.Body)
		testkit.Check(t, errors.Join(err, response.Body.Close()))
		if response.StatusCode != http.StatusOK {
			t.Fatalf("etcd's alarm: %s %s", response.Status, text)
		}
	}
	alarm("ACTIVATE")
	defer alarm("DEACTIVATE")
	do()
}

// pod asks for nothing of Tenon but with the labels.
func pod(namespace, name string, labels map[string]string) *corev1.Pod {
	p := object.Pod(namespace+"/"+name, object.Container("c", "i"))
	p.Labels, p.Spec.AutomountServiceAccountToken = labels, new(bool)
	return p
}

// withoutManager checks what happens to pods of a release whose manager does not answer.
func (c *cluster) withoutManager(t *testing.T) {
	for _, in := range []string{"default", namespace, metav1.NamespaceSystem} {
		_, err := c.client.CoreV1().ServiceAccounts(in).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			testkit.Check(t, err)
		}
	}
	pods, uses := c.client.CoreV1().Pods("default"), map[string]string{"koordinator.sh/qosClass": "LS"}
	t.Run("plain pods are created, changed and deleted", func(t *testing.T) {
		_, err := pods.Create(t.Context(), pod("default", "plain", nil), metav1.CreateOptions{})
		testkit.Check(t, err)
		_, err = pods.Patch(t.Context(), "plain", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{})
		testkit.Check(t, err)
		testkit.Check(t, pods.Delete(t.Context(), "plain", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
	t.Run("pods of the release and of the system are created", func(t *testing.T) {
		for _, in := range []string{namespace, metav1.NamespaceSystem} {
			_, err := c.client.CoreV1().Pods(in).Create(t.Context(), pod(in, "own", uses),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			testkit.Check(t, err)
		}
	})
	t.Run("a pod that uses Tenon is refused", func(t *testing.T) {
		user := pod("default", "user", uses)
		user.Spec.SchedulerName = "tenon-scheduler"
		_, err := pods.Create(t.Context(), user, metav1.CreateOptions{})
		refused(t, err, `failed calling webhook "validate-new.pods.tenon.sh"`)
		if _, err := pods.Get(t.Context(), "user", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
	})
	t.Run("status names what does not work", func(t *testing.T) {
		own := pod(namespace, "tenon-manager-x", map[string]string{"app.kubernetes.io/name": "tenon-manager"})
		_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), own, metav1.CreateOptions{})
		testkit.Check(t, err)
		_, err = c.client.CoreV1().Pods(namespace).Patch(t.Context(), own.Name, types.MergePatchType, []byte(
			`{"status":{"containerStatuses":[{"name":"c","image":"example.com/tenon-manager:v9","imageID":"",`+
				`"ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}`),
			metav1.PatchOptions{}, "status")
		testkit.Check(t, err)
		t.Setenv("TENON_NAMESPACE", namespace)
		var out bytes.Buffer
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
		code := cli.Run(t.Context(), cli.NewRoot("tenon", streams, cli.Doctor{}),
			[]string{"status", "--kubeconfig", c.kubeconfig}, &out)
		if code != 5 {
			t.Errorf("exit code %d, want 5", code)
		}
		for _, want := range []string{
			"0 of 2 ready; ImagePullBackOff, image example.com/tenon-manager:v9", `failed calling webhook`,
			"caBundle of the webhooks",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
		testkit.Check(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), own.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
}

// logged reports whether the process has logged a text, whether it was quoted or not.
func (c *cluster) logged(t *testing.T, text string) bool {
	t.Helper()
	log, err := os.ReadFile(c.log)
	testkit.Check(t, err)
	return strings.Contains(strings.ReplaceAll(string(log), `\`, ""), text)
}

// startsManager runs the manager by the account and with the arguments that the chart gives it: first without an API
// server, then without the rights that its certificates need, until both webhook configurations have its authorities.
func (c *cluster) startsManager(t *testing.T, helm release) {
	roles := c.client.RbacV1().RoleBindings(namespace)
	testkit.Check(t, roles.Delete(t.Context(), "tenon-manager", metav1.DeleteOptions{}))
	testkit.Check(t, c.ports.Release(datadir.Kubelets))
	away := c.ports.Address(datadir.Kubelets)
	health, stop := c.manager(t, "https://"+away)
	defer func() { testkit.Check(t, stop()) }()
	answer := func(path string) (code int) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+path, http.NoBody)
		testkit.Check(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0 // it does not listen yet
		}
		testkit.Check(t, response.Body.Close())
		return response.StatusCode
	}
	t.Run("an API server that is away at the start", func(t *testing.T) {
		await(t, "an error", func(context.Context) (bool, error) {
			return c.logged(t, "dial tcp "+away+": connect: connection refused"), nil
		})
		if alive, ready := answer("/healthz"), answer("/readyz"); alive != http.StatusOK || ready == http.StatusOK {
			t.Errorf("/healthz answers %d and /readyz %d, want it alive and not ready", alive, ready)
		}
	})
	forward(t, away, c.ports.Address(datadir.APIServer))
	t.Run("no rights for certificates", func(t *testing.T) {
		await(t, "the right that is missing", func(context.Context) (bool, error) {
			return c.logged(t, "Certificates not kept") && c.logged(t, `cannot get resource "secrets"`), nil
		})
		if code := answer("/readyz"); code == http.StatusOK {
			t.Error("it is ready without a certificate")
		}
	})
	t.Run("an upgrade gives the rights back", func(t *testing.T) {
		testkit.Check(t, helm("upgrade", "tenon", namespace))
		await(t, "the authorities are published", c.published)
		await(t, "the manager is ready", func(context.Context) (bool, error) {
			return answer("/readyz") == http.StatusOK, nil
		})
	})
	t.Run("webhooks that need no room", func(t *testing.T) {
		c.full(t, func() {
			if code := answer("/readyz"); code != http.StatusOK {
				t.Errorf("/readyz answers %d", code)
			}
		})
	})
	testkit.Check(t, stop()) // while the disk is full it cannot renew its lease
	t.Run("a store that is full", func(t *testing.T) {
		c.full(t, func() {
			refused(t, helm("upgrade", "tenon", namespace, "--set", "scheduler.replicas=5"), "database space exceeded")
			_, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod("default", "no-room", nil),
				metav1.CreateOptions{})
			refused(t, err, "database space exceeded")
		})
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), "no-room", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("a pod that was refused: %v", err)
		}
		c.replicas(t, 2)
	})
}

// manager runs one over an API server until stop, and returns where it serves its health.
func (c *cluster) manager(t *testing.T, server string) (health string, stop func() error) {
	t.Helper()
	d, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), "tenon-manager", metav1.GetOptions{})
	testkit.Check(t, err)
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(),
		d.Spec.Template.Spec.ServiceAccountName, &authentication.TokenRequest{}, metav1.CreateOptions{})
	testkit.Check(t, err)
	own := filepath.Join(t.TempDir(), "token")
	testkit.Check(t, os.WriteFile(own, []byte(token.Status.Token), 0o600))
	at := kubeconf.Cluster{Server: server, Authority: c.server.Authority}
	testkit.Check(t, kubeconf.WriteToken(own+".kubeconfig", at, own))
	testkit.Check(t, c.ports.Release(datadir.Webhooks))
	testkit.Check(t, c.ports.Release(datadir.ManagerHealth))
	health = c.ports.Address(datadir.ManagerHealth)
	command := manager.NewCommand()
	command.SetArgs(append(d.Spec.Template.Spec.Containers[0].Args, "--kubeconfig="+own+".kubeconfig",
		"--metrics-address=0", "--webhook-address="+c.ports.Address(datadir.Webhooks), "--health-address="+health))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	return health, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// forward passes connections on until the test ends.
func forward(t *testing.T, from, to string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", from)
	testkit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() }) // no connection is under way
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = client.Close()
				return
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // until one of them ends
					_, _ = way[0].Close(), way[1].Close()
				}()
			}
		}
	}()
}
