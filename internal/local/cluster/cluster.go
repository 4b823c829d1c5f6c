package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/plane"
	"github.com/tenon-project/tenon/internal/local/proc"
)

// Options are the options of Start.
type Options struct {
	Dir   datadir.Dir
	Nodes []datadir.Node // empty: the nodes of the last start, else DefaultMachines
	// Joined are the names of nodes that are not simulated: they get the credentials of a kubelet and an agent. When
	// Joined is set and Nodes is empty, the cluster has no simulated nodes.
	Joined []string
	// Schedulers is the number of scheduler replicas, up to datadir.MaxSchedulers; one leads, the others wait.
	Schedulers int
	// Journal makes each of them record what it decides, in the folder's journal/NAME.
	Journal bool
	// Binary is run as `BINARY VERB --data DIR` for each child, with the verbs below.
	Binary string
	// Manifests is applied before any of Tenon's processes starts, Admission once the manager answers; without
	// Admission no manager runs. Without Manifests agents have no accounts and get no tokens, and no descheduler runs.
	Manifests, Admission [][]byte
	// RequireNRIPlugin is the manager's flag: real nodes join, whose runtimes read the annotation. Simulated nodes have
	// no runtime that would start a container without their agent.
	RequireNRIPlugin bool
	// Lease is how long a leader of the scheduler that is gone leads on; 0 is the default of the child.
	Lease time.Duration
	// RevokeAfter is how long a quota may use more than its share while another asks for it; 0 is the default.
	RevokeAfter time.Duration
	// Autoscaled makes the manager keep nodes with Reservations, and create helper pods, for an autoscaler.
	Autoscaled bool
	// DeschedulerConfig is the file of the descheduler's configuration; empty: pods move for PodMigrationJobs alone.
	DeschedulerConfig string
	// SchedulerConfig is the file of the scheduler's configuration; empty: it serves the names of every local cluster.
	SchedulerConfig string
	// Flags are further ones of the API server.
	Flags []string
	// APIServer is a kube-apiserver that is run in place of the one that is built in; empty: none.
	APIServer string
	// Report is called with each step, from several goroutines.
	Report func(Step)
}

// The hidden verbs of the child processes.
const (
	SchedulerVerb   = "__scheduler"
	ManagerVerb     = "__manager"
	DeschedulerVerb = "__descheduler"
	NodesVerb       = "__nodes"
)

// Step is a part of the start that has finished, or news for the user.
type Step struct {
	Text string
	Took time.Duration // since the start; 0 for news
}

// Cluster is a running cluster.
type Cluster struct {
	dir    datadir.Dir
	nodes  []datadir.Node
	joined []string
	ports  *datadir.Ports
	log    *os.File
	plane  *plane.Plane
	begun  time.Time
	report func(Step)
	undo   []func() error // functions that Stop calls, the last one first

	mu       sync.Mutex             // guards children
	children map[string]*proc.Child // by name
}

// Start starts a cluster and returns when everything in it is ready. When it fails nothing is left running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{dir: o.Dir, joined: o.Joined, report: o.Report, begun: time.Now(), children: map[string]*proc.Child{}}
	if err := c.start(ctx, o); err != nil {
		stopErr := c.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if c.plane != nil && c.plane.Err() != nil {
			err = c.plane.Err() // the cause of the other errors
		}
		return nil, Explain(errors.Join(err, stopErr), o.Dir)
	}
	return c, nil
}

// Nodes returns the simulated machines.
func (c *Cluster) Nodes() []datadir.Node { return c.nodes }

// Wait returns nil when ctx ends, and an error when the control plane breaks before that.
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.plane.Broken().Done():
		return Explain(c.plane.Err(), c.dir)
	}
}

// Stop stops all components: first those that write to the API server, then the API server, then the store.
func (c *Cluster) Stop() error {
	var errs []error
	for _, undo := range slices.Backward(c.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (c *Cluster) stopChildren() error {
	var names []string
	for replica := range datadir.MaxSchedulers {
		names = append(names, schedulerName(replica))
	}
	for _, name := range append(names, deschedulerName, managerName, nodesName) {
		c.mu.Lock()
		child := c.children[name]
		c.mu.Unlock()
		if child != nil {
			child.Stop()
		}
	}
	return nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	if err := c.openDataDir(o); err != nil {
		return err
	}
	id, err := writeIdentities(c.dir, c.ports, c.nodeNames(), o.Schedulers, time.Now())
	if err != nil {
		return err
	}
	if err := c.startPlane(ctx, id, o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.plane.Broken(), cancel)()
	client, err := kubernetes.NewForConfig(kubeconf.BuiltIn(id.adminConfig()))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	applier, err := install.NewApplier(id.adminConfig())
	if err != nil {
		return err
	}
	if err := c.install(ctx, applier, client, o.Manifests); err != nil {
		return err
	}
	if len(o.Manifests) > 0 {
		c.startTokens(client, id)
	}
	if err := c.releasePorts(); err != nil {
		return err
	}
	c.undo = append(c.undo, c.stopChildren)
	return utilerrors.AggregateGoroutines(
		func() error { return c.startManager(ctx, o, applier, id) },
		func() error { return c.startNodes(ctx, o, client, id) },
		func() error { return c.startSchedulers(ctx, o, id) },
		func() error { return c.startDescheduler(ctx, o) },
		func() error { return awaitDefaultAccount(ctx, client) },
	)
}

// openDataDir makes the data folder, locks it for this process, and reads what an earlier start left in it.
func (c *Cluster) openDataDir(o Options) error {
	if err := c.dir.Make(); err != nil {
		return err
	}
	lock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	c.undo = append(c.undo, lock.Close)
	if err := checkSpace(c.dir); err != nil {
		return err
	}
	if c.nodes, err = c.chooseNodes(o.Nodes); err != nil {
		return err
	}
	if c.log, err = os.OpenFile(c.dir.Log("control-plane"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	c.undo = append(c.undo, c.log.Close)
	if c.ports, err = c.dir.Ports(); err != nil {
		return err
	}
	c.undo = append(c.undo, func() error { c.ports.Close(); return nil })
	for _, m := range c.ports.Moved {
		c.report(Step{Text: moveText(m)})
	}
	return nil
}

// chooseNodes returns the nodes of this start. It removes the tree of each earlier node that is not among them with the
// same machine; a new tree is generated later.
func (c *Cluster) chooseNodes(asked []datadir.Node) ([]datadir.Node, error) {
	saved, err := c.dir.SavedNodes()
	if err != nil {
		return nil, err
	}
	nodes := asked
	if len(nodes) == 0 && len(c.joined) == 0 {
		if nodes = saved; len(nodes) == 0 {
			nodes, err = Expand(DefaultMachines(), 0)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, old := range saved {
		if slices.Contains(nodes, old) {
			continue
		}
		if err := os.RemoveAll(c.dir.Node(old.Name)); err != nil {
			return nil, fmt.Errorf("remove machine of an earlier start: %w", err)
		}
	}
	return nodes, c.dir.SaveNodes(nodes)
}

func (c *Cluster) nodeNames() []string {
	names := slices.Clone(c.joined)
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	return names
}

// news reports each line that is written to it.
type news struct{ *Cluster }

func (n news) Write(line []byte) (int, error) {
	n.report(Step{Text: strings.TrimSuffix(string(line), "\n")})
	return len(line), nil
}

func (c *Cluster) startPlane(ctx context.Context, id *identities, o Options) error {
	var err error
	c.plane, err = plane.Start(ctx, plane.Config{
		Dir: c.dir, PKI: id.authority, Listener: c.ports.Listener(datadir.APIServer), Log: c.log,
		Admin: id.adminConfig(), Flags: o.Flags, Program: o.APIServer,
		News: news{c},
	})
	if err != nil {
		return err
	}
	c.undo = append(c.undo, c.plane.Stop)
	c.reportStep("control plane (etcd, kube-apiserver)")
	return c.plane.StartControllers(ctx, c.dir.Credential(controllers))
}

func (c *Cluster) startTokens(client kubernetes.Interface, id *identities) {
	t := &tokens{dir: c.dir, client: client, cluster: id.cluster, nodes: c.nodeNames()}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { t.run(ctx) })
	c.undo = append(c.undo, func() error {
		cancel()
		wg.Wait()
		return nil
	})
}

func (c *Cluster) reportStep(text string) { c.report(Step{Text: text, Took: time.Since(c.begun)}) }

func moveText(m datadir.Move) string {
	cause := "is in use by another process"
	if m.Unsafe {
		cause = "is in the kernel's range for outgoing connections"
	}
	text := fmt.Sprintf("port %d of %s %s: using %d", m.Old, m.Service, cause, m.New)
	if m.Service == datadir.APIServer || m.Service == datadir.Diagnostics {
		text += "; copies of the old kubeconfig no longer work"
	}
	return text
}
