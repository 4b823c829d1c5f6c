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
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMachineThatCannotBeWrittenEndsTheRun(t *testing.T) {
	t.Parallel()
	d, _, err := machine.Parse("arm64-1s")
	testkit.Check(t, err)
	err = Run(t.Context(), Options{Nodes: []Node{{
		Name: "n0", Machine: d, Dir: "/proc/nowhere/n0",
		Client: fake.NewClientset(),
	}}})
	if err == nil || !strings.Contains(err.Error(), "n0") {
		t.Errorf("Run answers %v, want an error that names the node", err)
	}
}

// lines counts the lines of a log.
type lines struct{ n *int }

func (l lines) Init(logr.RuntimeInfo)          {}
func (l lines) Enabled(int) bool               { return true }
func (l lines) Info(int, string, ...any)       { *l.n++ }
func (l lines) Error(error, string, ...any)    { *l.n++ }
func (l lines) WithValues(...any) logr.LogSink { return l }
func (l lines) WithName(string) logr.LogSink   { return l }

func TestNodesThatWaitDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := 0
		ctx := klog.NewContext(t.Context(), logr.New(lines{&written}))
		n := &node{Node: Node{Name: "n0"}}
		begun := time.Now()
		missing := func(context.Context) error {
			if time.Since(begun) < 10*time.Minute {
				return errors.New("the agent's credential is not there yet")
			}
			return nil
		}
		if !n.keepTrying(ctx, "start the agent", missing) {
			t.Fatal("gave up")
		}
		if written < 9 || written > 10 {
			t.Errorf("%d lines in ten minutes, want one a minute", written)
		}
	})
}

// freeAddress returns a loopback address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	answer, err := client.Get(url)
	testkit.Check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testkit.Check(t, err)
	return string(text)
}

func TestNodesEndWithTheirContextAndAnswerUntilThen(t *testing.T) {
	t.Parallel()
	dir := testkit.Dir(t)
	authority, err := pki.Open(dir, time.Now())
	testkit.Check(t, err)
	if _, err := authority.Issue("kubelets", pki.Subject{User: "kubelets", Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	d, _, err := machine.Parse("arm64-1s")
	testkit.Check(t, err)
	address := freeAddress(t)
	asked := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Address: address, CertFile: filepath.Join(dir, "kubelets.crt"),
			KeyFile: filepath.Join(dir, "kubelets.key"), Nodes: []Node{{
				Name: "n0", Machine: d, Dir: filepath.Join(dir, "n0"), Client: fake.NewClientset(),
				Agent: func() (kubernetes.Interface, dynamic.Interface, error) {
					select {
					case asked <- struct{}{}:
					default:
					}
					return nil, nil, errors.New("the agent's credential is not there yet")
				},
			}},
		})
	}()
	<-asked // the node is registered and waits for its agent's credential
	if text := get(t, "https://"+address+"/containerLogs/default/p/c"); text != noLogs {
		t.Errorf("logs are %q", text)
	}
	metrics := get(t, "https://"+address+"/metrics")
	for _, name := range []string{
		"tenon_agent_apply_seconds", "tenon_agent_drift_total",
		"tenon_agent_enforcement_failures_total",
	} {
		if !strings.Contains(metrics, "# TYPE "+name) {
			t.Errorf("/metrics does not tell %s", name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run answers %v after its context ended, want nil", err)
	}
}
