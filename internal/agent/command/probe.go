package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/observe"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func newProbeCommand() *cobra.Command {
	var flags common
	var output string
	c := &cobra.Command{
		Use:   "probe",
		Short: "Print what this machine is: the objects that the agent would publish",
		Long: "Print what this machine, or the tree of files below --root, is: the objects that the agent would " +
			"publish.\n" +
			"json is one v1 List with the NodeResourceTopology first, yaml is documents. Nothing is written anywhere.",
		Example: "  tenon-agent probe\n  tenon-agent probe --root ./capture --node-name n0 -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			objects, err := flags.probe(c.Context(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return printObjects(c.OutOrStdout(), output, objects)
		},
	}
	flags.add(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	return c
}

// probe returns the objects of the machine. What its files leave open is written to notes.
func (f *common) probe(ctx context.Context, notes io.Writer) ([]any, error) {
	var o app.Options
	if err := f.parse(&o); err != nil {
		return nil, err
	}
	settings := o.Kubelet
	reading, err := host.Read(o.Root, o.Arch)
	if err != nil {
		return nil, err
	}
	for _, note := range reading.Notes {
		fmt.Fprintln(notes, "note:", note)
	}
	if f.kubelet == "" && o.Switches.QueryKubelet {
		if known, how := observe.Known(o.Root, reading.Machine); how != "" {
			settings = known
			fmt.Fprintf(notes, "note: of the kubelet count %s; --kubelet says others\n", how)
		}
	}
	quiet, err := host.Quiet(o.Root, reading.Machine)
	if err != nil {
		fmt.Fprintln(notes, "note: what disturbs CPUs cannot be read in full:", err)
	}
	mode, _ := probe.ModeOf(o.Switches, settings.CPU.Policy == annotation.KubeletPolicyStatic, "")
	in := probe.Input{
		NodeName: o.Node, Machine: reading.Machine, Quiet: &quiet, Kubelet: settings, Mode: mode,
		Writer: "tenon-agent/" + o.Version,
	}
	if err := host.CheckKubelet(&settings, reading.Machine); err != nil {
		fmt.Fprintln(notes, "note: a kubelet with these settings would not start here:", err)
	}
	if o.Switches.QueryKubelet {
		if in.State, err = observe.Records(o.Root, settings, reading.Machine, in.State); err != nil {
			fmt.Fprintln(notes, "note: what the kubelet's managers have recorded cannot be used:", err)
		}
	}
	in.Draft = probe.NewDraft(in, convert.Facts)
	for _, p := range in.Draft.Problems {
		fmt.Fprintln(notes, "note:", p)
	}
	objects := []any{probe.Topology(in)}
	drivers := inventory.Sysfs(o.Root)
	if o.Root.Dir == "/" { // a library or a program knows this machine alone
		drivers = append(drivers, inventory.NVML(o.Root)...)
		drivers = append(drivers, inventory.SMI(o.Root, inventory.HostSMI(o.Root)))
	}
	found, _ := inventory.New(inventory.Options{Root: o.Root, Drivers: drivers, Clock: clock.RealClock{}})
	if _, err := found.Refresh(ctx); err != nil {
		fmt.Fprintln(notes, "note: of the devices is left out:", err)
	}
	devices, err := probe.Device(in, found.Devices(nil), nil, metav1.Now())
	if err != nil {
		fmt.Fprintln(notes, "note: of the devices is left out:", err)
	}
	if devices != nil {
		objects = append(objects, devices)
	}
	if volcano := probe.Numatopology(in); f.volcano && volcano != nil {
		objects = append(objects, volcano)
	}
	return objects, nil
}

func printObjects(w io.Writer, format string, objects []any) error {
	switch format {
	case "json":
		return printJSON(w, map[string]any{
			"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": objects,
		})
	case "yaml":
		for _, o := range objects {
			text, err := yaml.Marshal(o)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("output %q: want yaml or json", format)
}
