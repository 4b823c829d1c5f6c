package verb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	config "github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/deploy"
	manager "github.com/tenon-project/tenon/internal/control/app"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/core/workload"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/simnode"
	schedapp "github.com/tenon-project/tenon/internal/sched/app"
)

func manifests() [][]byte {
	return slices.Concat(deploy.CRDs(), deploy.RBAC(), deploy.PriorityClasses())
}

// pluginRights is what the chart gives the descheduler for single plugins and fields of its configuration.
const pluginRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenon-descheduler-plugins}
rules:
- {apiGroups: [slo.koordinator.sh], resources: [nodemetrics], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods, pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [pods], verbs: [delete]}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get]}
- {apiGroups: [lifecycle.k8s.io], resources: [evictionrequests], verbs: [get, list, watch, create, delete]}
`

const pluginRightsBound = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tenon-descheduler-plugins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenon-descheduler-plugins}
subjects: [{kind: ServiceAccount, namespace: tenon-system, name: tenon-descheduler}]
`

// profileRights is what the chart gives the scheduler where it has a configuration.
const profileRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenon-scheduler-profiles}
rules:
- {apiGroups: [slo.koordinator.sh], resources: [nodemetrics], verbs: [list, watch]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [gpu-shared-resource-templates], verbs: [list, watch]}
`

const profileRightsBound = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tenon-scheduler-profiles}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenon-scheduler-profiles}
subjects: [{kind: ServiceAccount, namespace: tenon-system, name: tenon-scheduler}]
`

// helperNamespace, helperRights and helperRightsBound are what the chart has for the scale helper.
const helperNamespace = `apiVersion: v1
kind: Namespace
metadata: {name: tenon-scale-helper, labels: {pod-security.kubernetes.io/enforce: restricted}}
`

const helperRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: tenon-scale-helper, name: tenon-manager}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create, delete]}
`

const helperRightsBound = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: tenon-scale-helper, name: tenon-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenon-manager}
subjects: [{kind: ServiceAccount, namespace: tenon-system, name: tenon-manager}]
`

// ports are those of the services, saved by the process that started the cluster.
type ports = map[datadir.Service]int

func hidden(verb string, run func(context.Context, datadir.Dir, ports) error) *cobra.Command {
	return served(verb, func(ctx context.Context, dir datadir.Dir, saved ports, _ schedulerConfig) error {
		return run(ctx, dir, saved)
	})
}

// served is hidden for a verb that needs to know which schedulers serve the cluster.
func served(verb string, run func(context.Context, datadir.Dir, ports, schedulerConfig) error) *cobra.Command {
	var data, file string
	c := &cobra.Command{
		Use:    verb,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := datadir.Resolve(data)
			if err != nil {
				return err
			}
			saved, err := dir.SavedPorts()
			if err != nil {
				return err
			}
			schedulers, err := readSchedulerConfig(file)
			if err != nil {
				return err
			}
			return run(c.Context(), dir, saved, schedulers)
		},
	}
	c.Flags().StringVar(&data, "data", "", "folder of the cluster's data")
	c.Flags().StringVar(&file, "scheduler-config", "", "as that of tenon up")
	return c
}

func newScheduler() *cobra.Command {
	var replica int
	var elect, journal bool
	var lease time.Duration
	child := served(cluster.SchedulerVerb, func(ctx context.Context, dir datadir.Dir, ports ports,
		schedulers schedulerConfig,
	) error {
		kubeconfig := dir.Credential(cluster.Scheduler)
		certFile, keyFile := dir.Pair(cluster.SchedulerServing)
		c := schedapp.NewCommand()
		recorded := ""
		if journal {
			recorded = dir.Journal(replica)
		}
		profiles := "--serve-scheduler-names=" + strings.Join(simnode.SchedulerNames(), ",")
		if schedulers.file != "" {
			own := dir.SchedulerConfig(replica)
			if err := schedulers.write(own, kubeconfig); err != nil {
				return err
			}
			profiles = "--config=" + own
		}
		c.SetArgs([]string{
			profiles,
			"--journal=" + recorded,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			// One alone must not wait after a crash for the lease of the last. Replicas wait less than on a real
			// cluster.
			"--leader-elect=" + strconv.FormatBool(elect),
			"--leader-elect-resource-namespace=tenon-system", // where the chart gives it the right
			"--leader-elect-lease-duration=" + lease.String(),
			"--leader-elect-renew-deadline=" + (lease * 3 / 4).String(),
			"--leader-elect-retry-period=" + (lease / 8).String(),
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(ports[datadir.SchedulerSecure.Of(replica)]),
			"--tls-cert-file=" + certFile,
			"--tls-private-key-file=" + keyFile,
			"--legacy-debug-address=" + address(ports[datadir.Diagnostics.Of(replica)]),
			"--legacy-debug-allow-flags",
		})
		return c.ExecuteContext(ctx)
	})
	child.Flags().IntVar(&replica, "replica", 0, "number of this replica, from 0")
	child.Flags().BoolVar(&elect, "elect", false, "elect a leader among the replicas")
	child.Flags().BoolVar(&journal, "journal", false, "record what is decided")
	child.Flags().DurationVar(&lease, "lease", 0, "how long a leader that is gone leads on")
	return child
}

func newManager() *cobra.Command {
	var fences, autoscaled bool
	var revokeAfter time.Duration
	child := served(cluster.ManagerVerb, func(ctx context.Context, dir datadir.Dir, ports ports,
		schedulers schedulerConfig,
	) error {
		certFile, keyFile := dir.Pair(cluster.Webhooks)
		logger := klog.Background()
		quotas := schedulers.quotas
		if revokeAfter > 0 && quotas.Revoke != nil {
			quotas.Revoke.Delay = revokeAfter
		}
		serving.UseLogger(logger)
		return manager.Run(klog.NewContext(ctx, logger), manager.Options{
			Component: serving.Component{
				Kubeconfig: dir.Credential(cluster.Manager), HealthAddress: address(ports[datadir.ManagerHealth]),
			},
			WebhookAddress:      address(ports[datadir.Webhooks]),
			CertFile:            certFile,
			KeyFile:             keyFile,
			SchedulerIdentities: manager.DefaultSchedulerIdentities(),
			SchedulerNames:      append([]string{cluster.Scheduler}, schedulers.names()...),
			RequireNRIPlugin:    fences,
			Quotas:              quotas,
			ProtectReservations: autoscaled,
			ScaleHelper:         autoscaled,
			PublishDevices:      true,
			Workloads:           workload.Builtin(),
			WorkloadGrouping:    workload.Declared,
			SLOConfigNamespace:  "tenon-system",
		})
	})
	child.Flags().BoolVar(&fences, "require-nri-plugin", false, "as that of tenon-manager")
	child.Flags().DurationVar(&revokeAfter, "revoke-after", 0, "as delayEvictTime of the plugin's arguments")
	child.Flags().BoolVar(&autoscaled, "autoscaled", false,
		"as --protect-reservations and --scale-helper of tenon-manager")
	return child
}

func newDescheduler() *cobra.Command {
	var file string
	child := served(cluster.DeschedulerVerb, func(ctx context.Context, dir datadir.Dir, ports ports,
		schedulers schedulerConfig,
	) error {
		settings, err := deschedulerSettings(file)
		if err != nil {
			return err
		}
		settings.Migration.SchedulerNames = schedulers.names()
		logger := klog.Background()
		serving.UseLogger(logger)
		return descheduler.Run(klog.NewContext(ctx, logger), descheduler.Options{
			Component: serving.Component{
				Kubeconfig: dir.Credential(cluster.Descheduler), Namespace: "tenon-system",
				HealthAddress: address(ports[datadir.DeschedulerHealth]),
			},
			ServingAddress: address(ports[datadir.Descheduler]), Settings: settings,
			SchedulerAddress: "http://" + address(ports[datadir.Diagnostics]),
		})
	})
	child.Flags().StringVar(&file, "config", "", "as that of tenon-descheduler")
	return child
}

// deschedulerSettings reads the configuration of the descheduler. Without a file, a pod may move when it has just been
// created: whoever tries a job does not wait.
func deschedulerSettings(file string) (config.Settings, error) {
	if file == "" {
		settings, err := config.Read("", nil)
		settings.Migration.MinPodAge.Duration = 0
		return settings, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return config.Settings{}, err
	}
	return config.Read(file, text)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func newNodes() *cobra.Command {
	return served(cluster.NodesVerb, func(ctx context.Context, dir datadir.Dir, ports ports,
		schedulers schedulerConfig,
	) error {
		saved, err := dir.SavedNodes()
		if err != nil {
			return err
		}
		nodes := make([]simnode.Node, 0, len(saved))
		machines := map[string]machine.Description{} // by spec: a captured one is unpacked to be read
		for _, s := range saved {
			m, known := machines[s.Machine]
			if !known {
				if m, _, err = machine.Parse(s.Machine); err != nil {
					return err
				}
				machines[s.Machine] = m
			}
			n, err := simulated(dir, s.Name, m)
			if err != nil {
				return err
			}
			nodes = append(nodes, n)
		}
		certFile, keyFile := dir.Pair(cluster.KubeletServing)
		return simnode.Run(ctx, simnode.Options{
			Nodes: nodes, Address: address(ports[datadir.Kubelets]), CertFile: certFile,
			KeyFile: keyFile, Version: version.String(), Schedulers: schedulers.names(),
		})
	})
}

func simulated(dir datadir.Dir, name string, m machine.Description) (simnode.Node, error) {
	// a kubelet's own defaults; client-go's would hold up a node full of pods for a minute
	client, _, err := clients(dir.Credential(cluster.KubeletCredential(name)), 50, 100)
	if err != nil {
		return simnode.Node{}, err
	}
	return simnode.Node{
		Name: name, Machine: m, Dir: dir.Node(name), Client: client,
		Agent: func() (kubernetes.Interface, dynamic.Interface, error) {
			return clients(dir.Credential(cluster.AgentCredential(name)), 0, 0)
		},
	}, nil
}

// clients returns the clients of built-in and of other kinds for a credential; 0 means client-go's limits.
func clients(credential string, qps float32, burst int) (kubernetes.Interface, dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", credential)
	if err != nil {
		return nil, nil, fmt.Errorf("read credential: %w", err)
	}
	config.QPS, config.Burst = qps, burst
	client, err := kubernetes.NewForConfig(kubeconf.BuiltIn(config))
	if err != nil {
		return nil, nil, fmt.Errorf("make client with %s: %w", credential, err)
	}
	objects, err := dynamic.NewForConfig(config)
	return client, objects, err
}

// JoinVerb is the hidden verb of a control plane for nodes that are not simulated: those of the agent's tests.
const JoinVerb = "__join"

func newJoin() *cobra.Command {
	var nodes []string
	var schedulers int
	var webhooks, bare bool
	var c *cobra.Command
	c = hidden(JoinVerb, func(ctx context.Context, dir datadir.Dir, _ ports) error {
		if len(nodes) == 0 {
			return fmt.Errorf("%s: --node is missing", JoinVerb)
		}
		serving.UseLogger(klog.Background())
		binary, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the binary to start the components with: %w", err)
		}
		o := cluster.Options{
			Dir: dir, Joined: nodes, Schedulers: schedulers, Binary: binary,
			RequireNRIPlugin: true,
			Report:           func(s cluster.Step) { fmt.Fprintf(c.OutOrStdout(), "%s (%v)\n", s.Text, s.Took) },
		}
		if !bare {
			o.Manifests = manifests()
		}
		if webhooks {
			o.Admission = deploy.Webhooks(simnode.SchedulerNames()...)
		}
		running, err := cluster.Start(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "ready") // what the one who started it waits for
		return errors.Join(running.Wait(ctx), running.Stop())
	})
	c.Flags().StringSliceVar(&nodes, "node", nil,
		"names of the nodes, which get the credentials of a kubelet and an agent")
	c.Flags().IntVar(&schedulers, "schedulers", 0, "number of schedulers")
	c.Flags().BoolVar(&webhooks, "webhooks", false, "start the manager with its webhooks")
	c.Flags().BoolVar(&bare, "bare", false, "leave definitions, rights and agents' tokens to the chart")
	return c
}
