package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/kubernetes/pkg/util/taints"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/proc"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	pollInterval = 100 * time.Millisecond
	// defaultLease is less than on a real cluster, and long enough for a machine that is busy.
	defaultLease = 4 * time.Second
	// progressInterval is the least time between two lines about nodes that become ready.
	progressInterval = 5 * time.Second
)

// install applies the objects that all components of Tenon need.
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
	c.reportStep("definitions and rights")
	return nil
}

// removeOldNodes deletes the Nodes of earlier starts that are not nodes of this one, and their pods without a grace
// period, since no kubelet would end them.
func (c *Cluster) removeOldNodes(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	wanted, removed := sets.New(c.nodeNames()...), sets.New[string]()
	for i := range list.Items {
		name := list.Items[i].Name
		if wanted.Has(name) {
			continue
		}
		removed.Insert(name)
		err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %s of an earlier start: %w", name, err)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	deleted := 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if !removed.Has(p.Spec.NodeName) {
			continue
		}
		deleted++
		err := client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s of node %s: %w", p.Namespace, p.Name, p.Spec.NodeName, err)
		}
	}
	c.report(Step{Text: fmt.Sprintf("removed %s of the last start with %s: %s", view.Count(len(removed), "node"),
		view.Count(deleted, "pod"), Few(sets.List(removed)))})
	return nil
}

// Few joins names. It replaces all names after the eighth by an ellipsis.
func Few(names []string) string {
	const few = 8
	if len(names) > few {
		names = append(slices.Clone(names[:few]), "…")
	}
	return strings.Join(names, ", ")
}

func (c *Cluster) startManager(ctx context.Context, o Options, applier *install.Applier, id *identities) error {
	if len(o.Admission) == 0 {
		return nil
	}
	ready := readyz("http://"+c.ports.Address(datadir.ManagerHealth), nil)
	if err := c.run(ctx, o, ManagerVerb, managerName, ready,
		"--require-nri-plugin="+strconv.FormatBool(o.RequireNRIPlugin),
		"--revoke-after="+o.RevokeAfter.String(), "--autoscaled="+strconv.FormatBool(o.Autoscaled),
		schedulerConfig(o)); err != nil {
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
	c.reportStep("manager and its webhooks")
	return nil
}

func (c *Cluster) startNodes(ctx context.Context, o Options, client kubernetes.Interface, id *identities) error {
	if len(c.nodes) == 0 {
		return nil
	}
	objects, err := metadata.NewForConfig(id.adminConfig())
	if err != nil {
		return fmt.Errorf("make client of topologies: %w", err)
	}
	pause := time.Duration(len(c.nodes)) * time.Millisecond // so the lists of 1,000 nodes are read once a second
	var asked time.Time
	last := time.Now() // when the last line was reported
	if err := c.run(ctx, o, NodesVerb, nodesName, func(ctx context.Context) error {
		if time.Since(asked) < pause {
			return errors.New("the nodes were counted a moment ago")
		}
		asked = time.Now()
		ready, err := c.readyNodes(ctx, client, objects)
		if err != nil || ready == len(c.nodes) {
			return err
		}
		text := fmt.Sprintf("%d of %d simulated nodes are ready", ready, len(c.nodes))
		if now := time.Now(); now.Sub(last) >= progressInterval {
			last = now
			c.reportStep(text)
		}
		return errors.New(text)
	}, schedulerConfig(o)); err != nil {
		return err
	}
	c.reportStep(fmt.Sprintf("%d simulated nodes", len(c.nodes)))
	return nil
}

// schedulerConfig is the flag by which each child learns which schedulers serve the cluster.
func schedulerConfig(o Options) string { return "--scheduler-config=" + o.SchedulerConfig }

func (c *Cluster) startSchedulers(ctx context.Context, o Options, id *identities) error {
	start := make([]func() error, o.Schedulers)
	for replica := range start {
		ready := readyz("https://"+c.ports.Address(datadir.SchedulerSecure.Of(replica)), id.authority.Certificate())
		start[replica] = func() error {
			return c.run(ctx, o, SchedulerVerb, schedulerName(replica), ready, "--replica", strconv.Itoa(replica),
				"--journal="+strconv.FormatBool(o.Journal), "--elect="+strconv.FormatBool(o.Schedulers > 1),
				"--lease="+cmp.Or(o.Lease, defaultLease).String(), schedulerConfig(o))
		}
	}
	if err := utilerrors.AggregateGoroutines(start...); err != nil {
		return err
	}
	text := "scheduler"
	if o.Schedulers > 1 {
		text = fmt.Sprintf("%d schedulers, one leads", o.Schedulers)
	}
	c.reportStep(text)
	return nil
}

func (c *Cluster) startDescheduler(ctx context.Context, o Options) error {
	if len(o.Manifests) == 0 {
		return nil // it has no rights
	}
	ready := readyz("http://"+c.ports.Address(datadir.DeschedulerHealth), nil)
	if err := c.run(ctx, o, DeschedulerVerb, deschedulerName, ready, "--config="+o.DeschedulerConfig,
		schedulerConfig(o)); err != nil {
		return err
	}
	c.reportStep("descheduler")
	return nil
}

// Names of the children, in news and in the names of their logs.
const (
	deschedulerName = "descheduler"
	managerName     = "manager"
	nodesName       = "nodes"
)

func schedulerName(replica int) string { return string(datadir.Service("scheduler").Of(replica)) }

func (c *Cluster) run(ctx context.Context, o Options, verb, name string, ready func(context.Context) error,
	more ...string,
) error {
	child, err := proc.Start(ctx, proc.Spec{
		Name: name, Path: o.Binary, Args: append([]string{verb, "--data", c.dir.Root()}, more...),
		LogFile: c.dir.Log(name), Ready: ready,
		Ended: func(how error, pause time.Duration) {
			c.report(Step{Text: fmt.Sprintf("%s ended (%v); it is started again in %v, its log is %s", name, how, pause,
				c.dir.Log(name))})
		},
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[name] = child
	return nil
}

// releasePorts closes the ports of children so that the children can open them. Ports of children that do not run would
// otherwise accept connections and never answer.
func (c *Cluster) releasePorts() error {
	for _, s := range datadir.Services() {
		if s == datadir.APIServer {
			continue
		}
		if err := c.ports.Release(s); err != nil {
			return fmt.Errorf("release the port of %s: %w", s, err)
		}
	}
	return nil
}

func (c *Cluster) readyNodes(ctx context.Context, client kubernetes.Interface, objects metadata.Interface) (ready int,
	err error,
) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list leases of nodes: %w", err)
	}
	// The status of a node of an earlier start still says that the node is ready; a renewed lease shows that it runs.
	alive := sets.New[string]()
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Spec.RenewTime != nil && l.Spec.RenewTime.After(c.begun) {
			alive.Insert(l.Name)
		}
	}
	topologies, err := objects.Resource(v1alpha2.GroupVersion().WithResource("noderesourcetopologies")).List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list topologies: %w", err)
	}
	published := sets.New[string]() // the nodes whose agent has published the machine
	for i := range topologies.Items {
		published.Insert(topologies.Items[i].Name)
	}
	for i := range list.Items {
		n := &list.Items[i]
		// Pods do not run on a node until the taints are removed that it has at its creation.
		tainted := taints.TaintKeyExists(n.Spec.Taints, corev1.TaintNodeNotReady) ||
			taints.TaintKeyExists(n.Spec.Taints, corev1.TaintNodeUnreachable)
		if alive.Has(n.Name) && published.Has(n.Name) && !tainted && nodeutil.IsNodeReady(n) {
			ready++
		}
	}
	return ready, nil
}

// awaitDefaultAccount waits for the service account that pods have by default.
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
