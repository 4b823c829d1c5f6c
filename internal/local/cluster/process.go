package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/kubernetes/pkg/util/taints"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/proc"
)

const pollInterval = 100 * time.Millisecond

// install applies what must be there before anybody of Tenon starts.
func (c *Cluster) install(ctx context.Context, applier *install.Applier, client kubernetes.Interface,
	manifests [][]byte,
) error {
	objects, err := install.Parse(manifests...)
	if err != nil {
		return err
	}
	if err := applier.Apply(ctx, objects); err != nil {
		return err
	}
	if err := applier.AwaitEstablished(ctx, objects); err != nil {
		return err
	}
	if err := c.removeOldNodes(ctx, client); err != nil {
		return err
	}
	c.done("definitions and rights")
	return nil
}

// removeOldNodes deletes the Nodes of an earlier start whose machines this one does not have, and their pods: no
// kubelet would ever end them.
func (c *Cluster) removeOldNodes(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	wanted := make(map[string]bool, len(c.nodes))
	for _, name := range c.nodeNames() {
		wanted[name] = true
	}
	removed := map[string]bool{}
	for i := range list.Items {
		name := list.Items[i].Name
		if wanted[name] {
			continue
		}
		removed[name] = true
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %s of an earlier start: %w", name, err)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	pods, err := deletePods(ctx, client, removed)
	if err != nil {
		return err
	}
	c.report(Step{Text: fmt.Sprintf("removed %s of the last start with %s: %s", count(len(removed), "node"),
		count(pods, "pod"),
		Few(slices.Sorted(maps.Keys(removed))))})
	return nil
}

// deletePods deletes the pods of nodes at once and returns how many there were.
func deletePods(ctx context.Context, client kubernetes.Interface, nodes map[string]bool) (deleted int, err error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list pods: %w", err)
	}
	zero := int64(0)
	for i := range pods.Items {
		p := &pods.Items[i]
		if !nodes[p.Spec.NodeName] {
			continue
		}
		err := client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return deleted, fmt.Errorf("delete pod %s/%s of node %s: %w", p.Namespace, p.Name, p.Spec.NodeName, err)
		}
		deleted++
	}
	return deleted, nil
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Few joins names while they are few; the rest is an ellipsis.
func Few(names []string) string {
	const few = 8
	if len(names) > few {
		names = append(slices.Clone(names[:few]), "…")
	}
	return strings.Join(names, ", ")
}

func (c *Cluster) startManager(ctx context.Context, o Options, applier *install.Applier, id *identities) error {
	if err := c.release(datadir.Webhooks, datadir.ManagerHealth); err != nil {
		return err
	}
	if len(o.Admission) == 0 {
		return nil
	}
	ready := readyz("http://"+c.ports.Address(datadir.ManagerHealth), nil)
	if err := c.run(ctx, o, ManagerVerb, managerName, ready,
		"--require-nri-plugin="+strconv.FormatBool(o.RequireNRIPlugin)); err != nil {
		return err
	}
	objects, err := install.Parse(o.Admission...)
	if err != nil {
		return err
	}
	if err := install.PointWebhooks(objects, "https://"+c.ports.Address(datadir.Webhooks),
		id.authority.Certificate()); err != nil {
		return err
	}
	if err := applier.Apply(ctx, objects); err != nil {
		return err
	}
	c.done("manager and its webhooks")
	return nil
}

func (c *Cluster) startNodes(ctx context.Context, o Options, client kubernetes.Interface) error {
	if err := c.release(datadir.Kubelets); err != nil {
		return err
	}
	if len(c.nodes) == 0 {
		return nil
	}
	p := &progress{c: c, client: client, last: time.Now()}
	if err := c.run(ctx, o, NodesVerb, nodesName, p.ready); err != nil {
		return err
	}
	c.done(fmt.Sprintf("%d simulated nodes", len(c.nodes)))
	return nil
}

func (c *Cluster) startSchedulers(ctx context.Context, o Options, id *identities) error {
	// Held ports of replicas that do not run would take connections and never answer.
	for replica := o.Schedulers; replica < datadir.MaxSchedulers; replica++ {
		if err := c.release(datadir.SchedulerSecure.Of(replica), datadir.Diagnostics.Of(replica)); err != nil {
			return err
		}
	}
	start := make([]func() error, o.Schedulers)
	for replica := range start {
		start[replica] = func() error { return c.startScheduler(ctx, o, id, replica) }
	}
	if err := utilerrors.AggregateGoroutines(start...); err != nil {
		return err
	}
	if o.Schedulers > 1 {
		c.done(fmt.Sprintf("%d schedulers, one leads", o.Schedulers))
	} else {
		c.done("scheduler")
	}
	return nil
}

func (c *Cluster) startScheduler(ctx context.Context, o Options, id *identities, replica int) error {
	secure := datadir.SchedulerSecure.Of(replica)
	if err := c.release(secure, datadir.Diagnostics.Of(replica)); err != nil {
		return err
	}
	ready := readyz("https://"+c.ports.Address(secure), id.authority.Certificate())
	args := []string{"--replica", strconv.Itoa(replica)}
	if o.Schedulers > 1 {
		args = append(args, "--elect")
	}
	return c.run(ctx, o, SchedulerVerb, schedulerName(replica), ready, args...)
}

// The names of the children, in news and of their logs.
const (
	managerName = "manager"
	nodesName   = "nodes"
)

func schedulerName(replica int) string { return string(datadir.Service("scheduler").Of(replica)) }

func (c *Cluster) run(ctx context.Context, o Options, verb, name string, ready func(context.Context) error,
	more ...string,
) error {
	child, err := proc.Start(ctx, proc.Spec{
		Name:    name,
		Path:    o.Binary,
		Args:    append([]string{verb, "--data", c.dir.Root()}, more...),
		LogFile: c.dir.Log(name),
		Ready:   ready,
	}, func(name string, how error, pause time.Duration) {
		c.report(Step{Text: fmt.Sprintf("%s ended (%v); it is started again in %v, its log is %s", name, how, pause,
			c.dir.Log(name))})
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[name] = child
	return nil
}

// release gives ports to the child that serves them.
func (c *Cluster) release(services ...datadir.Service) error {
	for _, s := range services {
		if err := c.ports.Release(s); err != nil {
			return fmt.Errorf("release the port of %s: %w", s, err)
		}
	}
	return nil
}

// progressInterval is the least time between two lines about nodes that become ready.
const progressInterval = 5 * time.Second

// progress is how far the nodes of a start are.
type progress struct {
	c      *Cluster
	client kubernetes.Interface
	last   time.Time // of the last line
}

// ready returns an error while nodes are not ready, and reports how many are.
func (p *progress) ready(ctx context.Context) error {
	ready, err := p.c.readyNodes(ctx, p.client)
	if err != nil {
		return err
	}
	if ready == len(p.c.nodes) {
		return nil
	}
	if now := time.Now(); now.Sub(p.last) >= progressInterval {
		p.last = now
		p.c.done(fmt.Sprintf("%d of %d simulated nodes are ready", ready, len(p.c.nodes)))
	}
	return fmt.Errorf("%d of %d nodes are ready", ready, len(p.c.nodes))
}

// readyNodes counts the nodes that are ready for pods.
func (c *Cluster) readyNodes(ctx context.Context, client kubernetes.Interface) (ready int, err error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list leases of nodes: %w", err)
	}
	// The last status of a node of an earlier start is still there, and was "ready".
	alive := make(map[string]bool, len(leases.Items))
	for i := range leases.Items {
		l := &leases.Items[i]
		alive[l.Name] = l.Spec.RenewTime != nil && l.Spec.RenewTime.After(c.begun)
	}
	topologies, err := c.topologies(ctx, client)
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		n := &list.Items[i]
		// Pods would wait for the taints with which a node is born.
		tainted := taints.TaintKeyExists(n.Spec.Taints, corev1.TaintNodeNotReady) ||
			taints.TaintKeyExists(n.Spec.Taints, corev1.TaintNodeUnreachable)
		if alive[n.Name] && topologies[n.Name] && !tainted && nodeutil.IsNodeReady(n) {
			ready++
		}
	}
	return ready, nil
}

// topologies returns the names of the nodes whose agent has published the machine.
func (c *Cluster) topologies(ctx context.Context, client kubernetes.Interface) (map[string]bool, error) {
	text, err := client.CoreV1().RESTClient().Get().
		AbsPath("/apis", v1alpha2.GroupName, v1alpha2.GroupVersion().Version, "noderesourcetopologies").
		Param("resourceVersion", "0").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topologies: %w", err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("list topologies: %w", err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// awaitDefaultAccount waits for what every pod needs that names no service account.
func awaitDefaultAccount(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default service account: %w", err)
	}
	return nil
}

// readyz returns a readiness check that asks a server; authority is PEM and signs the server's certificate.
func readyz(server string, authority []byte) func(context.Context) error {
	config := &rest.Config{
		Host: server, QPS: -1, Timeout: 2 * time.Second, TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs},
	}
	client, err := rest.UnversionedRESTClientFor(config)
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		return client.Get().AbsPath("/readyz").Do(ctx).Error()
	}
}
