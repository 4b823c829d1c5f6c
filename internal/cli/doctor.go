package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Machines are those that the verb capacity adds.
type Machines struct {
	// Objects returns the Node, the NodeResourceTopology and the Device of machines. The error of a name that is not
	// allowed has an exit code. It is nil in a program without machines.
	Objects func(names []string) ([]runtime.Object, error)
	// Presets are the names of the built-in machines, which a shell completes.
	Presets []string
}

// Doctor is what other components do for verbs: they examine machines and nodes for doctor, and pods for explain, and
// know Machines.
type Doctor struct {
	Machines Machines

	// Machine examines the files of a machine below a folder, and asks the agent at an address, if it is not "".
	Machine func(ctx context.Context, root, agent string) (view.Diagnosis, error)
	// GPUs examines what NVIDIA's cards of the machine below a folder need.
	GPUs func(ctx context.Context, root string) (view.Diagnosis, error)
	// API examines objects.
	API Examiner
	// Past reads a file of a scheduler's journal. nil: the console shows no recorded past.
	Past func(name string, file io.Reader) (view.Past, error)
	// Warnings are what admission warns of in a pod. nil: explain shows none.
	Warnings func(*corev1.Pod) []string
}

// Examiner examines what the API says.
type Examiner interface {
	Node(convert.NodeObjects) view.Diagnosis
	// Cluster examines a cluster that is to get Tenon.
	Cluster(convert.ClusterObjects) view.Diagnosis
	// Workloads examines what operators and Kueue write for pods.
	Workloads(convert.WorkloadObjects) view.Diagnosis
}

type doctorOptions struct {
	format, root, node, agent string
}

func newDoctor(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, doctor Doctor) *cobra.Command {
	var o doctorOptions
	c := help.Command(texts, "doctor", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.node != "" && c.Flags().Changed("root") {
				return usagef("--root and --node exclude each other: --root reads files, --node reads the API")
			}
			d, err := o.diagnose(c.Context(), flags, doctor)
			if err != nil {
				return err
			}
			return printChecks(streams.Out, o.format, &d)
		},
	})
	outputFlag(c, &o.format)
	c.Flags().StringVar(&o.root, "root", "/", "directory to use as the machine's /")
	c.Flags().StringVar(&o.node, "node", "", "diagnose this node of the cluster from the API")
	utilruntime.Must(c.RegisterFlagCompletionFunc("node", completeNames(flags, "node")))
	c.Flags().StringVar(&o.agent, "health-address", "127.0.0.1:10271",
		"health address of the machine's agent; empty to skip the agent")
	c.AddCommand(newDoctorGPU(streams, doctor), newDoctorWorkloads(flags, streams, doctor))
	return c
}

func newDoctorGPU(streams genericiooptions.IOStreams, doctor Doctor) *cobra.Command {
	var format, root string
	c := help.Command(texts, "doctor-gpu", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := doctor.GPUs(c.Context(), root)
			if err != nil {
				return usagef("--root: %v", err)
			}
			return printChecks(streams.Out, format, &d)
		},
	})
	outputFlag(c, &format)
	c.Flags().StringVar(&root, "root", "/", "directory to use as the machine's /")
	return c
}

func (o *doctorOptions) diagnose(ctx context.Context, flags *genericclioptions.ConfigFlags, doctor Doctor,
) (none view.Diagnosis, err error) {
	if o.node == "" {
		d, err := doctor.Machine(ctx, o.root, o.agent)
		if err != nil {
			return none, usagef("--root: %v", err)
		}
		return d, nil
	}
	cl, err := connect(flags)
	if err != nil {
		return none, err
	}
	nodes, err := cl.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return none, fmt.Errorf("list nodes: %w", err)
	}
	named, err := only(nodes.Items, o.node)
	if err != nil {
		return none, err
	}
	v := convert.NodeObjects{Node: &named[0], Now: time.Now()}
	if v.Topology, err = cl.topology(ctx, o.node); err != nil {
		return none, err
	}
	if v.Topology != nil {
		v.Written = lastWrite(v.Topology)
	}
	if _, err := each(ctx, cl, devicev1alpha1.Resource(), o.node, kube.ReadDevice,
		func(d *devicev1alpha1.Device) { v.Device = d }); err != nil {
		return none, err
	}
	if local, err := addressesInKubeconfig(flags); err == nil && len(local) > 0 {
		v.AgentUnknown = errors.New("in a local cluster the simulated node runs it itself")
	} else {
		agents, err := cl.agentPods(ctx, o.node)
		if v.AgentUnknown = err; len(agents) > 0 {
			v.Agent = &agents[0]
		}
	}
	v.ClaimsUnknown = cl.readClaims(ctx, &v)
	d := doctor.API.Node(v)
	strategy, err := cl.strategy(ctx, v.Node)
	if err != nil {
		strategy = []view.Finding{{
			Check: "colocation", Status: view.CheckUnknown, Found: rightMissing(err, "get on configmaps of namespace "+
				installedIn()).Error(),
		}}
	}
	d.Findings = append(d.Findings, strategy...)
	return d, nil
}

// readClaims reads what DRA drivers publish, and who has the cards of a node.
func (c cluster) readClaims(ctx context.Context, v *convert.NodeObjects) error {
	list, err := c.core.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list resourceslices: %w", err)
	}
	a, err := c.load(ctx, v.Node.Name, "")
	if err != nil {
		return err
	}
	v.Slices, v.Account = list.Items, a.view(v.Node.Name)
	for e := range v.Account.Entries() {
		if !strings.HasPrefix(e.UID, ledger.OfClaim) {
			continue
		}
		if text := kube.Contested(v.Account, []ledger.Entry{e}); text != "" {
			v.Twice = append(v.Twice, text)
		}
	}
	return nil
}
