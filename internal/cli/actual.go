package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/tenon-project/tenon/internal/view"
)

// explained is the answer about one pod: what the scheduler says, and what the kernel of its node has.
type explained struct {
	view.Pod
	Phase corev1.PodPhase `json:"phase,omitempty"`
	// Actual is absent for pods without a node, and when the node's agent could not be asked.
	Actual *view.Cgroups `json:"actual,omitempty"`
	// Jobs move the pod, or make room for it.
	Jobs []jobMove `json:"jobs,omitempty"`
}

// Where the agents of a real cluster are, unless TENON_NAMESPACE says another namespace, and their address inside pods.
const (
	agentNamespace = "tenon-system"
	agentSelector  = "app.kubernetes.io/name=tenon-agent"
	agentPort      = 10271
)

// actualTimeout bounds the question: the rest of the answer is there already.
const actualTimeout = 5 * time.Second

// askAgent asks the agent of the pod's node what the kernel has. In a local cluster the simulated kubelets answer for
// the agents; elsewhere a port is forwarded to the agent's pod, with the rights of the user.
func (e *explanation) askAgent(ctx context.Context, pod *corev1.Pod) (*view.Cgroups, error) {
	ctx, cancel := context.WithTimeout(ctx, actualTimeout)
	defer cancel()
	var status int
	var text []byte
	target := view.CgroupsPath(pod.Namespace, pod.Name)
	local, err := addressesInKubeconfig(e.flags)
	switch {
	case err != nil:
	case len(local) > 0:
		status, text, err = e.askKubelet(ctx, pod.Spec.NodeName, target)
	default:
		status, text, err = e.forward(ctx, pod.Spec.NodeName, target)
	}
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("error from the agent: %s", said(status, text))
	}
	out := &view.Cgroups{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if out.UID != string(pod.UID) {
		return nil, errors.New("the agent reports another pod of that name")
	}
	return out, nil
}

// askKubelet asks the simulated kubelet of a node: its API server does not pass on what concerns loopback addresses.
// The kubelet shows a certificate of the cluster's authority, and is shown no credential.
func (c cluster) askKubelet(ctx context.Context, name, target string) (status int, text []byte, err error) {
	node, err := c.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, nil, rightMissing(err, "get on nodes")
	}
	address := slices.IndexFunc(node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if address < 0 || port == 0 {
		return 0, nil, fmt.Errorf("node %s does not say where its kubelet listens", name)
	}
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.config))
	if err != nil {
		return 0, nil, fmt.Errorf("make a client: %w", err)
	}
	at := net.JoinHostPort(node.Status.Addresses[address].Address, strconv.Itoa(int(port)))
	return fetch(ctx, client, "the agent", "https://"+at+target)
}

func (c cluster) agentPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, err := c.core.CoreV1().Pods(installedIn()).List(ctx, metav1.ListOptions{
		LabelSelector: agentSelector, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, rightMissing(err, "list on pods of namespace "+installedIn())
	}
	return pods.Items, nil
}

func (c cluster) forward(ctx context.Context, node, target string) (status int, text []byte, err error) {
	pods, err := c.agentPods(ctx, node)
	if err != nil {
		return 0, nil, err
	}
	running := slices.IndexFunc(pods,
		func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil })
	if running < 0 {
		return 0, nil, fmt.Errorf("no agent runs on node %s (namespace %s, label %s)", node, installedIn(),
			agentSelector)
	}
	address, stop, err := c.forwardPort(ctx, installedIn(), pods[running].Name, agentPort)
	if err != nil {
		return 0, nil, err
	}
	defer stop()
	return fetch(ctx, http.DefaultClient, "the agent", "http://"+address+target)
}

// forwardPort forwards a port of a pod to an address of this machine's loopback until stop is called.
func (c cluster) forwardPort(ctx context.Context, namespace, pod string, port int) (at string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return "", nil, fmt.Errorf("make a client: %w", err)
	}
	to := c.core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource(
		"portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	stopped, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", port)}, stopped, ready, io.Discard, io.Discard)
	var ports []portforward.ForwardedPort
	if err == nil {
		go func() { ended <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
			ports, err = forwarder.GetPorts()
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		close(stopped)
		return "", nil, fmt.Errorf("forward a port to pod %s: %w", pod, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(stopped) }, nil
}

func rightMissing(err error, right string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s is missing: %w", right, err)
	}
	return err
}

// addActual asks the node's agent about a bound pod. A missing answer becomes a note, and so does what the kubelet says
// of a container that has not started; the rest of the answer is valid.
func (e *explanation) addActual(ctx context.Context, answer *explained, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || answer.State != view.Bound || answer.Rejection != nil {
		return
	}
	actual, err := e.askAgent(ctx, pod)
	if err != nil {
		answer.Notes = append(answer.Notes, "the values in the kernel are unknown: "+err.Error())
	}
	answer.Actual = actual
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Message != "" {
			answer.Notes = append(answer.Notes, "container "+s.Name+" has not started: "+
				w.Reason+": "+strings.TrimPrefix(w.Message, w.Reason+": "))
		}
	}
}

func (r *renderer) actual(p view.Cgroups) {
	label := "actual"
	for _, g := range p.Groups {
		who := ""
		if g.Container != "" {
			who = g.Container + ": "
		}
		if g.Gone {
			r.line(label, who+"its cgroup is gone: "+g.Path)
			label = ""
			continue
		}
		for _, v := range g.Values {
			if v.State == view.Differs || v.State == view.Unreadable {
				label = r.cross() + label
			}
			r.line(label, who+valueText(v))
			label = ""
		}
		r.out.WriteString(strings.Repeat(" ", labelWidth+2) + g.Path + "\n") // whole: to be copied
		if d := g.Drift; d != nil {
			text := fmt.Sprintf("  drifted %s ago: another program set %s to %q instead of %q", age(r.now.Sub(d.Seen)),
				d.File, d.Got, d.Want)
			if d.Repaired != nil {
				r.line("", text+", set back "+age(r.now.Sub(*d.Repaired))+" ago")
			} else {
				r.line("", text+", not set back yet")
			}
		}
	}
	r.line(label, p.Notes...)
}

func valueText(v view.CgroupValue) string {
	has := v.File + " " + v.Got
	if v.Got == "" {
		has = v.File + " is empty"
	}
	if v.Effective != "" && v.Effective != v.Got {
		has += " (effective " + v.Effective + ")"
	}
	switch v.State {
	case view.Matches:
		return fmt.Sprintf("%s, as wanted (%s)", has, v.Cause)
	case view.Differs:
		text := fmt.Sprintf("%s, wanted %s (%s)", has, v.Want, v.Cause)
		if v.AtCreation {
			text += ": set when the container is created, not restored later"
		}
		return text
	case view.Unreadable:
		return fmt.Sprintf("%s cannot be read: %s", v.File, v.Error)
	}
	return fmt.Sprintf("%s, %s", has, v.Cause)
}
