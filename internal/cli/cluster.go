package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

type cluster struct {
	core    kubernetes.Interface
	dynamic dynamic.Interface
	config  *rest.Config
	// namespace is where objects are listed; "" is all of them, and the cluster.
	namespace string
}

func connect(flags *genericclioptions.ConfigFlags) (cluster, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		err = fmt.Errorf("find the cluster: %w (set KUBECONFIG or --kubeconfig)", err)
		return cluster{}, failure{ExitUnreachable, err}
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
	return cluster{core: core, dynamic: dyn, config: config}, nil
}

// account is what the API says of nodes and their pods, as the scheduler would account it.
type account struct {
	table accounts.Table // of store and reserved
	store *kube.Store
	nodes []*corev1.Node // by name
	all   []*corev1.Pod
	// pods holds the live pods of each node, by UID.
	pods map[string]map[string]qos.Pod
	// used is the sum of their requests and of what Reservations hold, by node.
	used map[string]occupancy.Room
	// reserved has the Reservations; what they hold is in store. It is empty if the caller may not read them;
	// unreserved is the error then, else nil.
	reserved   *kube.Reservations
	unreserved error
	// metrics has the NodeMetrics by name. It is empty if the caller may not read them; unmeasured is the error then.
	metrics    map[string]*slo.NodeMetric
	unmeasured error
	// agents has for each node with a pod of the agent whether that is ready.
	agents map[string]bool
	// now is when the objects were read.
	now time.Time
	// quotas has the ElasticQuotas; nil where there are none.
	quotas *kube.Quotas
}

func newAccount(nodes []corev1.Node, pods []corev1.Pod, topologies []v1alpha2.NodeResourceTopology) *account {
	a := &account{
		store: kube.NewStore(), pods: map[string]map[string]qos.Pod{}, used: map[string]occupancy.Room{},
		reserved: kube.NewReservations(nil, time.Now), agents: map[string]bool{}, now: time.Now(),
	}
	a.table = accounts.Accounts{
		Nodes: a.store, Reservations: a.reserved, Claims: kube.NewClaims(a.store),
	}.Table()
	for i := range nodes {
		a.nodes = append(a.nodes, &nodes[i])
		a.table.Put(&nodes[i])
	}
	for i := range topologies {
		a.table.Put(&topologies[i])
	}
	for i := range pods {
		p := &pods[i]
		a.all = append(a.all, p)
		a.table.Put(p)
		if p.Labels[componentLabel] == view.AgentName && p.Spec.NodeName != "" {
			a.agents[p.Spec.NodeName] = a.agents[p.Spec.NodeName] || isReady(p)
		}
		if node := p.Spec.NodeName; node != "" && !convert.Ended(p) {
			if a.pods[node] == nil {
				a.pods[node] = map[string]qos.Pod{}
			}
			a.pods[node][string(p.UID)] = describe.Class(p)
			a.addRequests(p)
		}
	}
	slices.SortFunc(a.nodes, func(x, y *corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	return a
}

// addRequests adds what a pod requests to what is used of its node.
func (a *account) addRequests(p *corev1.Pod) {
	used, asks := a.used[p.Spec.NodeName], describe.Requests(p)
	used.MilliCPU, used.MemoryBytes = used.MilliCPU+asks.MilliCPU, used.MemoryBytes+asks.MemoryBytes
	used.Pods += asks.Pods
	a.used[p.Spec.NodeName] = used
}

// health returns the health of a node, with that of its agent as far as it is known.
func (a *account) health(n *corev1.Node) health.Health {
	f := convert.HealthFacts(n, a.metrics[n.Name])
	ready, known := a.agents[n.Name]
	f.AgentNotReady = known && !ready
	return health.Of(f, a.now)
}

// isReady reports whether a pod has the condition Ready.
func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// lastWrite is the newest time that any writer left in the managed fields, else the creation.
func lastWrite(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
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

func (a *account) node(name string) view.Node {
	known, _ := a.store.Node(name)
	out := describe.Node(known, a.pods[name])
	var shared int64
	for _, p := range a.all {
		if p.Spec.NodeName != name || convert.Ended(p) {
			continue
		}
		bound := slices.IndexFunc(out.Pods, func(h view.Holder) bool {
			return h.Namespace == p.Namespace && h.Name == p.Name
		})
		if bound < 0 {
			shared += describe.Requests(p).MemoryBytes
			continue
		}
		out.Pods[bound].Interrupts = describe.Interrupts(reportOfPod(a.metrics[name], p))
	}
	describe.SetCPUUse(&out, a.metrics[name], a.now)
	if shared > 0 {
		out.SharedMemory = view.BytesText(shared)
	}
	if known.Object != nil {
		out.Health = a.health(known.Object)
	}
	return out
}

// load reads one node and its pods, or, when node is "", all nodes with the labels of a selector.
func (c cluster) load(ctx context.Context, node, selector string) (*account, error) {
	nodes, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		if nodes.Items, err = only(nodes.Items, node); err != nil {
			return nil, err
		}
	}
	pods, err := c.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	a := newAccount(nodes.Items, pods.Items, nil)
	for _, kind := range []string{"NodeResourceTopology", "Numatopology", "Device"} {
		if _, err := c.read(ctx, a.table.Of(kind), node, a.table.Put); err != nil {
			return nil, err
		}
	}
	if err := c.claims(ctx, a.table); err != nil {
		return nil, err
	}
	_, a.unreserved = c.read(ctx, a.table.Of("Reservation"), "", a.table.Put)
	if a.unreserved != nil && !apierrors.IsForbidden(a.unreserved) {
		return nil, a.unreserved
	}
	for _, p := range a.reserved.ReservePods() {
		a.addRequests(p)
	}
	a.metrics, a.unmeasured = c.metrics(ctx, node)
	if a.unmeasured != nil && !apierrors.IsForbidden(a.unmeasured) {
		return nil, a.unmeasured
	}
	return a, nil
}

// claims reads which devices ResourceClaims have, where the cluster has the kinds. Who may not read them sees the other
// holders of devices.
func (c cluster) claims(ctx context.Context, table accounts.Table) error {
	published, err := c.core.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return absent("resourceslices", err)
	}
	claims, err := c.core.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return absent("resourceclaims", err)
	}
	for i := range published.Items {
		table.Put(&published.Items[i])
	}
	for i := range claims.Items {
		table.Put(&claims.Items[i])
	}
	return nil
}

// absent returns nil for the error of a server that does not have a resource, or does not show it to the caller.
func absent(resource string, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

var errNoNode = errors.New("not found")

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

// topology reads the NodeResourceTopology of a node; nil where there is none.
func (c cluster) topology(ctx context.Context, node string) (found *v1alpha2.NodeResourceTopology, err error) {
	kind := accounts.Accounts{}.Table().Of("NodeResourceTopology")
	_, err = c.read(ctx, kind, node, func(o any) bool {
		t, ok := o.(*v1alpha2.NodeResourceTopology)
		if ok && t.Name == node {
			found = t
		}
		return ok
	})
	return found, err
}

func (c cluster) objects(ctx context.Context, kind schema.GroupVersionResource, node string,
) ([]unstructured.Unstructured, error) {
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
	}
	found, err := c.dynamic.Resource(kind).Namespace(c.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// read reads the objects of a kind, or the one of a name, and reports whether the cluster serves the kind.
func (c cluster) read(
	ctx context.Context, kind accounts.Kind, name string, put func(any) bool,
) (served bool, err error) {
	for _, s := range kind.Sources {
		found := false
		for i := 0; i < len(s.At) && !found; i++ {
			if found, err = each(ctx, c, s.At[i], name, s.Read, func(o any) { put(o) }); err != nil {
				return false, err
			}
		}
		served = served || found
	}
	return served, nil
}

// each reads the objects of a resource, or the one of a name, and reports whether the cluster serves it.
func each[T any](ctx context.Context, c cluster, r schema.GroupVersionResource, name string,
	read func([]byte) (T, error), put func(T),
) (served bool, err error) {
	objects, err := c.objects(ctx, r, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", r.GroupResource(), err)
	}
	for i := range objects {
		text, err := objects[i].MarshalJSON()
		if err != nil {
			return false, fmt.Errorf("encode %s %s: %w", r.GroupResource(), objects[i].GetName(), err)
		}
		o, err := read(text)
		if err != nil {
			return false, fmt.Errorf("read %s %s: %w", r.GroupResource(), objects[i].GetName(), err)
		}
		put(o)
	}
	return true, nil
}

// localKubeconfig is the kubeconfig of a local cluster in the default data folder, below the user's home.
const localKubeconfig = ".tenon/kubeconfig"

// LocalCluster returns the kubeconfig of the local cluster when nothing else names a cluster: no KUBECONFIG, no
// kubeconfig in its default place, no service account of a pod. It returns "" otherwise, and without a local cluster.
func LocalCluster(env func(string) string) string {
	if env(clientcmd.RecommendedConfigPathEnvVar) != "" || env("KUBERNETES_SERVICE_HOST") != "" {
		return ""
	}
	home := env("HOME")
	if home == "" || exists(filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)) {
		return ""
	}
	if local := filepath.Join(home, localKubeconfig); exists(local) {
		return local
	}
	return ""
}

// NameCluster returns a ConfigFlags.WrapConfigFn that writes which cluster a command speaks to, once, where that is not
// one of tenon up: both have pods and nodes of the same names.
func NameCluster(flags *genericclioptions.ConfigFlags, errOut io.Writer) func(*rest.Config) *rest.Config {
	var once sync.Once
	return func(c *rest.Config) *rest.Config {
		once.Do(func() {
			if local, err := addressesInKubeconfig(flags); err == nil && len(local) == 0 {
				_, _ = fmt.Fprintf(errOut, "cluster %s\n", c.Host) // nowhere else to tell
			}
		})
		return c
	}
}

// ServerWarnings writes what the API server warns of in answers. It leaves out that a version of an API is deprecated:
// which versions the program reads is not the user's choice.
type ServerWarnings struct{ Out io.Writer }

// HandleWarningHeader implements rest.WarningHandler.
func (s ServerWarnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 && !strings.Contains(text, " is deprecated in v") {
		say(s.Out, "warning: %s\n", text)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
