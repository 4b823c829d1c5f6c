//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
)

// PlaneDir is the data folder of the control plane that all tests of a process share.
const PlaneDir = base + "/plane"

// The subject of the agents on any cluster.
const (
	agentNamespace = "tenon-system"
	agentAccount   = "tenon-agent"
)

// Plane is the control plane that all tests of a process share: Needs.Plane must ask for it.
type Plane struct {
	t testing.TB
	// Config is the administrator's.
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
}

// startPlane starts the control plane as a child of this process. The first process of the namespaces ends it with
// everything else; stop is for stages without.
func startPlane(flags []string) (stop func(), err error) {
	log, err := os.Create(filepath.Join(base, "plane.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if len(flags) == 0 {
		flags = []string{"--node=none"}
	}
	cmd := exec.CommandContext(context.Background(), Binary("tenon"), append([]string{"__join", "--data", PlaneDir},
		flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var how error
	go func() { how = cmd.Wait(); close(ended) }()
	stop = func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	}
	for end := time.Now().Add(2 * patience); time.Now().Before(end); time.Sleep(pause) {
		text, _ := os.ReadFile(log.Name())
		if strings.HasSuffix(string(text), "\nready\n") {
			return stop, os.WriteFile(filepath.Join(base, "plane.pid"), fmt.Append(nil, cmd.Process.Pid), 0o644)
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("control plane: %w\n%s", errors.Join(errors.New("it ended"), how), text)
		default:
		}
	}
	stop()
	return nil, errors.New("control plane: not ready in time")
}

// Plane returns the control plane.
func (s *Stage) Plane() *Plane {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(PlaneDir, "kubeconfig"))
	if err != nil {
		s.t.Fatalf("no control plane (does Needs ask for it?): %v", err)
	}
	config.QPS = -1
	p := &Plane{t: s.t, Config: config}
	p.Client, err = kubernetes.NewForConfig(config)
	must(s.t, err)
	p.Dynamic, err = dynamic.NewForConfig(config)
	must(s.t, err)
	return p
}

// Freeze stops the control plane from answering until the function that it returns is called, or the test ends.
func (p *Plane) Freeze() (thaw func()) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(base, "plane.pid"))
	must(p.t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	must(p.t, err)
	must(p.t, syscall.Kill(pid, syscall.SIGSTOP))
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	p.t.Cleanup(thaw)
	return thaw
}

// Node makes a Node that is ready, and removes it with its pods when the test ends.
func (p *Plane) Node(name string) *corev1.Node {
	p.t.Helper()
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}
	node, err := p.Client.CoreV1().Nodes().Create(p.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
	}, metav1.CreateOptions{})
	must(p.t, err)
	p.t.Cleanup(func() { p.remove(name) })
	// The controllers write to it, too.
	must(p.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err = p.Client.CoreV1().Nodes().Get(p.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status = corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastHeartbeatTime: metav1.Now(),
			}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"},
		}
		node, err = p.Client.CoreV1().Nodes().UpdateStatus(p.t.Context(), node, metav1.UpdateOptions{})
		return err
	}))
	return node
}

func (p *Plane) remove(node string) {
	ctx, cancel := timeout(patience)
	defer cancel()
	pods, err := p.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		p.t.Errorf("remove node: %v", err)
		return
	}
	now := metav1.NewDeleteOptions(0)
	for i := range pods.Items {
		err = errors.Join(err, ignoreGone(p.Client.CoreV1().Pods(pods.Items[i].Namespace).Delete(ctx,
			pods.Items[i].Name, *now)))
	}
	err = errors.Join(err, ignoreGone(p.Client.CoreV1().Nodes().Delete(ctx, node, *now)))
	if err != nil {
		p.t.Errorf("remove node: %v", err)
	}
}

// AgentKubeconfig writes the credential that the agent of a node has on any cluster: a token of its service account
// that is bound to the Node.
func (s *Stage) AgentKubeconfig(p *Plane, node *corev1.Node) string {
	s.t.Helper()
	hour := int64(time.Hour / time.Second)
	answer, err := p.Client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(s.t.Context(), agentAccount,
		&authentication.TokenRequest{
			Spec: authentication.TokenRequestSpec{
				ExpirationSeconds: &hour,
				BoundObjectRef: &authentication.BoundObjectReference{
					APIVersion: "v1", Kind: "Node", Name: node.Name,
					UID: node.UID,
				},
			},
		}, metav1.CreateOptions{})
	must(s.t, err)
	config := api.NewConfig()
	config.Clusters["stage"] = &api.Cluster{Server: p.Config.Host, CertificateAuthorityData: p.Config.CAData}
	config.AuthInfos["agent"] = &api.AuthInfo{Token: answer.Status.Token}
	config.Contexts["stage"] = &api.Context{Cluster: "stage", AuthInfo: "agent"}
	config.CurrentContext = "stage"
	file := s.Path("etc", "agent.kubeconfig")
	must(s.t, clientcmd.WriteToFile(*config, file))
	return file
}
