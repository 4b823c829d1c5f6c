package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// cluster reads API objects.
type cluster struct {
	core    kubernetes.Interface
	dynamic dynamic.Interface
	config  *rest.Config
}

func connect(flags genericclioptions.RESTClientGetter) (cluster, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return cluster{}, failure{
			ExitUnreachable,
			fmt.Errorf("find the cluster: %w (set KUBECONFIG or --kubeconfig)", err),
		}
	}
	config.UserAgent = "tenon"
	config.QPS, config.Burst = 50, 100
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return cluster{}, fmt.Errorf("make a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return cluster{}, fmt.Errorf("make a client: %w", err)
	}
	return cluster{core, dyn, config}, nil
}

// account is what the API says of nodes and their pods, as the scheduler would account it.
type account struct {
	store *kube.Store
	nodes []*corev1.Node // by name
	// pods holds the live pods of each node, by UID.
	pods map[string]map[string]qos.Pod
}

func newAccount(nodes []corev1.Node, pods []corev1.Pod, topologies []v1alpha2.NodeResourceTopology) *account {
	a := &account{store: kube.NewStore(), pods: map[string]map[string]qos.Pod{}}
	for i := range nodes {
		a.nodes = append(a.nodes, &nodes[i])
		a.store.PutNode(&nodes[i])
	}
	for i := range topologies {
		a.store.PutTopology(&topologies[i])
	}
	for i := range pods {
		p := &pods[i]
		a.store.PutPod(p)
		if node := p.Spec.NodeName; node != "" && !convert.Ended(p) {
			if a.pods[node] == nil {
				a.pods[node] = map[string]qos.Pod{}
			}
			a.pods[node][string(p.UID)] = describe.Class(p)
		}
	}
	slices.SortFunc(a.nodes, func(x, y *corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	return a
}

// lastWrite is the newest time that any writer left in the managed fields, else the creation.
func lastWrite(t *v1alpha2.NodeResourceTopology) time.Time {
	last := t.CreationTimestamp.Time
	for _, f := range t.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// view returns the account of a node; a node that nothing is known of has an empty one.
func (a *account) view(node string) *ledger.View {
	if v := a.store.View(node); v != nil {
		return v
	}
	return ledger.New(ledger.Facts{}).View()
}

// node describes a node.
func (a *account) node(name string) view.Node {
	known, _ := a.store.Node(name)
	return describe.Node(known, a.pods[name])
}

// load reads one node and its pods, or, when node is "", all nodes with the labels of a selector.
func (c cluster) load(ctx context.Context, node, selector string) (*account, error) {
	nodes, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if node != "" {
		if nodes.Items, err = only(nodes.Items, node); err != nil {
			return nil, err
		}
	}
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	pods, err := c.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	topologies, err := c.topologies(ctx, node)
	if err != nil {
		return nil, err
	}
	a := newAccount(nodes.Items, pods.Items, topologies)
	return a, c.addNumatopologies(ctx, a, node)
}

// errNoNode means that the API has no node of the name.
var errNoNode = errors.New("not found")

// only keeps the named node, or suggests the nearest name.
func only(nodes []corev1.Node, name string) ([]corev1.Node, error) {
	var names []string
	for i := range nodes {
		if nodes[i].Name == name {
			return nodes[i : i+1], nil
		}
		names = append(names, nodes[i].Name)
	}
	return nil, usagef("node %q %w%s", name, errNoNode, suggest(name, names))
}

// topologies reads the NodeResourceTopologies in the version that the server has; a server without the kind has none.
func (c cluster) topologies(ctx context.Context, node string) ([]v1alpha2.NodeResourceTopology, error) {
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
	}
	resource := v1alpha2.Resource()
	for _, version := range []string{resource.Version, "v1alpha1"} {
		resource.Version = version
		found, err := c.dynamic.Resource(resource).List(ctx, options)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list node resource topologies: %w", err)
		}
		return decodeTopologies(found.Items)
	}
	return nil, nil
}

// addNumatopologies reads Volcano's objects, which count where no topology has CPUs; a server without the kind has
// none.
func (c cluster) addNumatopologies(ctx context.Context, a *account, node string) error {
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
	}
	found, err := c.dynamic.Resource(nodeinfo.Resource()).List(ctx, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list numatopologies: %w", err)
	}
	for i := range found.Items {
		a.store.PutNumatopology(kube.ReadNumatopology(&found.Items[i]))
	}
	return nil
}

func decodeTopologies(items []unstructured.Unstructured) ([]v1alpha2.NodeResourceTopology, error) {
	out := make([]v1alpha2.NodeResourceTopology, len(items))
	for i, u := range items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read node resource topology %s: %w", u.GetName(), err)
		}
	}
	return out, nil
}
