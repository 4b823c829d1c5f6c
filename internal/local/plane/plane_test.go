package plane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
)

// patience bounds a wait for something that takes a moment; it is long because machines may be slow.
const patience = 2 * time.Minute

// TestPlane starts one control plane, because a process can have only one, and asks everything of it.
func TestPlane(t *testing.T) {
	dir, err := datadir.Resolve(filepath.Join(t.TempDir(), "data"))
	testkit.Check(t, err)
	testkit.Check(t, dir.Make())
	ports, err := dir.Ports()
	testkit.Check(t, err)
	defer ports.Close()
	authority, err := pki.Open(dir.PKI(), time.Now())
	testkit.Check(t, err)
	server := kubeconf.Cluster{
		Server:    "https://" + ports.Address(datadir.APIServer),
		Authority: authority.Certificate(),
	}
	user := func(s pki.Subject) *rest.Config {
		p, err := authority.Issue(strings.ReplaceAll(s.User, ":", "-"), s)
		testkit.Check(t, err)
		return &rest.Config{
			Host: server.Server, QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{CAData: server.Authority, CertData: p.Cert, KeyData: p.Key},
		}
	}
	admin := user(pki.Subject{User: "admin", Groups: []string{"system:masters"}})
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testkit.Check(t, err)
	p, err := Start(t.Context(), Config{
		Dir: dir, PKI: authority, Listener: ports.Listener(datadir.APIServer), Log: log,
		Admin: admin,
	})
	testkit.Check(t, err)
	defer func() {
		if err := p.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := p.Err(); err != nil {
			t.Errorf("a stop that was asked for is reported as a failure: %v", err)
		}
	}()
	client, err := kubernetes.NewForConfig(admin)
	testkit.Check(t, err)

	t.Run("the server names a version that clients can parse", func(t *testing.T) {
		v, err := client.Discovery().ServerVersion()
		testkit.Check(t, err)
		if v.Major != "1" || v.Minor != "37" || !strings.HasPrefix(v.GitVersion, "v1.37.") {
			t.Errorf("version is %+v, want 1.37", v)
		}
	})
	t.Run("a user without rights is refused", func(t *testing.T) {
		outsider, err := kubernetes.NewForConfig(user(pki.Subject{User: "outsider"}))
		testkit.Check(t, err)
		if _, err := outsider.CoreV1().Secrets("default").List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list secrets: %v, want forbidden", err)
		}
	})
	t.Run("a kubelet may change its own node and no other", func(t *testing.T) {
		kubelet, err := kubernetes.NewForConfig(user(pki.Subject{
			User:   "system:node:a",
			Groups: []string{"system:nodes"},
		}))
		testkit.Check(t, err)
		for name, allowed := range map[string]bool{"a": true, "b": false} {
			_, err := kubelet.CoreV1().Nodes().Create(t.Context(),
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if allowed != (err == nil) {
				t.Errorf("create node %s: %v, want allowed: %v", name, err, allowed)
			}
		}
	})
	t.Run("only this user reaches the store", func(t *testing.T) {
		for _, name := range []string{"etcd.sock", "etcd-peer.sock"} {
			info, err := os.Stat(filepath.Join(dir.Root(), name))
			testkit.Check(t, err)
			if info.Mode() != os.ModeSocket|0o700 {
				t.Errorf("%s has mode %v, want a socket for its owner alone", name, info.Mode())
			}
		}
	})
	t.Run("controllers make pods of a Deployment and garbage of its leavings", func(t *testing.T) {
		credentials, err := authority.Issue("kube-controller-manager",
			pki.Subject{User: "system:kube-controller-manager"})
		testkit.Check(t, err)
		kubeconfig := dir.Credential("kube-controller-manager")
		testkit.Check(t, kubeconf.WriteCertificate(kubeconfig, server, credentials))
		testkit.Check(t, p.StartControllers(t.Context(), kubeconfig))
		two := int32(2)
		labels := map[string]string{"app": "x"}
		_, err = client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &two,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
				},
			},
		}, metav1.CreateOptions{})
		testkit.Check(t, err)
		awaitPods(t, client, 2)
		testkit.Check(t, client.AppsV1().Deployments("default").Delete(t.Context(), "x", metav1.DeleteOptions{}))
		awaitPods(t, client, 0)
	})
}

func awaitPods(t *testing.T, client kubernetes.Interface, want int) {
	t.Helper()
	got := 0
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			got = len(pods.Items)
			return got == want, nil
		})
	if err != nil {
		t.Fatalf("wait for %d pods: %v; there are %d", want, err, got)
	}
}

func TestWhatEtcdLogsBeforeItWouldDieKeepsItsCause(t *testing.T) {
	t.Parallel()
	var got error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		logger := storeLogger(&strings.Builder{}, func(err error) { got = err })
		logger.Fatal("failed to commit tx", zap.Error(&os.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}))
		t.Error("the goroutine goes on after a fatal line")
	}()
	<-ended
	if !errors.Is(got, syscall.ENOSPC) {
		t.Errorf("got %v, want one that is ENOSPC", got)
	}
}
