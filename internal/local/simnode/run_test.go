package simnode

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMachineThatCannotBeWrittenEndsTheRun(t *testing.T) {
	t.Parallel()
	d, _, err := machine.Parse("arm64-1s")
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), Options{Nodes: []Node{{Name: "n0", Machine: d, Dir: "/proc/nowhere/n0", Client: fake.NewClientset()}}})
	if err == nil || !strings.Contains(err.Error(), "n0") {
		t.Errorf("Run answers %v, want an error that names the node", err)
	}
}

// freeAddress returns a loopback address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNodesEndWithTheirContextAndAnswerUntilThen(t *testing.T) {
	t.Parallel()
	dir := testkit.Dir(t)
	authority, err := pki.Open(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Issue("kubelets", pki.Subject{User: "kubelets", Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	d, _, err := machine.Parse("arm64-1s")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	asked := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Address: address, CertFile: filepath.Join(dir, "kubelets.crt"), KeyFile: filepath.Join(dir, "kubelets.key"), Nodes: []Node{{
			Name: "n0", Machine: d, Dir: filepath.Join(dir, "n0"), Client: fake.NewClientset(),
			Agent: func() (kubernetes.Interface, dynamic.Interface, error) {
				select {
				case asked <- struct{}{}:
				default:
				}
				return nil, nil, errors.New("the agent's credential is not there yet")
			},
		}}})
	}()
	<-asked // the node is registered and waits for its agent's credential
	if text := get(t, "https://"+address+"/containerLogs/default/p/c"); text != noLogs {
		t.Errorf("logs are %q", text)
	}
	metrics := get(t, "https://"+address+"/metrics")
	for _, name := range []string{"tenon_agent_apply_seconds", "tenon_agent_drift_total", "tenon_agent_enforcement_failures_total"} {
		if !strings.Contains(metrics, "# TYPE "+name) {
			t.Errorf("/metrics does not tell %s", name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run answers %v after its context ended, want nil", err)
	}
}
