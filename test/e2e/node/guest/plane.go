package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

const (
	// fewest is the simulated machine that every local cluster has at least one of; no pod of the tests goes there.
	fewest = "hybrid"
	// startLimit and endLimit bound the control plane's start and end.
	startLimit = 3 * time.Minute
	endLimit   = time.Minute
	// agentSpace and agentAccount are what the manifests of the agent make.
	agentSpace, agentAccount = "tenon-system", "tenon-agent"
	tokenLife                = 2 * time.Hour
)

// topologies is where nodes say what they are.
var topologies = schema.GroupVersionResource{
	Group: "topology.node.k8s.io", Version: "v1alpha2",
	Resource: "noderesourcetopologies",
}

// plane is a local cluster: control plane, scheduler and manager, children of the test.
type plane struct {
	dir     string
	command *exec.Cmd
	ended   chan error
	out     *output

	authority *pki.Authority
	port      string
	client    kubernetes.Interface
	dynamic   dynamic.Interface
}

// output is what a command has written so far.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startPlane starts a cluster in dir with the program tenon.
func startPlane(ctx context.Context, tenon, dir string) (_ *plane, err error) {
	p := &plane{dir: dir, ended: make(chan error, 1), out: &output{}}
	// It is stopped by stop, in order: not by the end of ctx.
	p.command = exec.CommandContext(context.Background(), tenon, "up", "--data", dir, "--machine", fewest,
		"--require-nri-plugin")
	p.command.Stdout, p.command.Stderr = p.out, p.out
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start tenon up: %w", err)
	}
	go func() { p.ended <- p.command.Wait() }()
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if err := p.awaitReady(ctx); err != nil {
		return nil, err
	}
	return p, p.connect()
}

func (p *plane) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(p.out.String(), "Ready in") {
		select {
		case <-tick.C:
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("tenon up ended: %w\n%s", err, p.out)
		case <-ctx.Done():
			return fmt.Errorf("tenon up: %w\n%s", ctx.Err(), p.out)
		}
	}
	return nil
}

func (p *plane) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(p.dir, "kubeconfig"))
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if p.dynamic, err = dynamic.NewForConfig(rest.CopyConfig(config)); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	p.port = server.Port()
	p.authority, err = pki.Open(filepath.Join(p.dir, "pki"), time.Now())
	return err
}

// stop ends the cluster as Ctrl-C does.
func (p *plane) stop() error {
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop tenon up: %w", err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("tenon up ended with %w\n%s", err, p.out)
		}
		return nil
	case <-time.After(endLimit):
		return errors.Join(fmt.Errorf("tenon up did not end within %v of Ctrl-C", endLimit), p.command.Process.Kill())
	}
}

// agentFiles returns the credentials of a node's agent. Its token is bound to the node, as a kubelet's tokens are to
// pods: the node must be there.
func (p *plane) agentFiles(ctx context.Context, node string) (map[string][]byte, error) {
	object, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node: %w", err)
	}
	seconds := int64(tokenLife / time.Second)
	answer, err := p.client.CoreV1().ServiceAccounts(agentSpace).CreateToken(ctx, agentAccount,
		&authentication.TokenRequest{
			Spec: authentication.TokenRequestSpec{
				ExpirationSeconds: &seconds,
				BoundObjectRef: &authentication.BoundObjectReference{
					APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node, UID: object.UID,
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token for the agent: %w", err)
	}
	file, err := kubeconfig(p.server(), &api.AuthInfo{Token: answer.Status.Token})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"agent.kubeconfig": file}, nil
}

// server is the API server on the host's loopback as a guest reaches it. Its certificate knows that name only.
func (p *plane) server() *api.Cluster {
	return &api.Cluster{
		Server: "https://" + vm.Host + ":" + p.port, TLSServerName: "127.0.0.1",
		CertificateAuthorityData: p.authority.Certificate(),
	}
}
