//go:build nolocal

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/sim"
)

// localVerbs refuse: kubectl-tenon has no control plane and no kubectl in it.
func localVerbs(genericiooptions.IOStreams) []*cobra.Command {
	var verbs []*cobra.Command
	for _, name := range []string{"up", "down", "kubectl"} {
		verbs = append(verbs, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				const text = "%q is not in this build, which is for clusters: the program tenon of a release has it"
				return &sim.InputError{Problems: []string{fmt.Sprintf(text, name)}}
			},
		})
	}
	return verbs
}

// machines refuses --machine: the presets belong to the local cluster.
func machines() sim.Machines {
	return sim.Machines{Objects: func([]string) ([]runtime.Object, error) {
		return nil, &sim.InputError{Problems: []string{
			"kubectl-tenon has no simulated machines: use tenon simulate, or give Nodes with -f or --cluster",
		}}
	}}
}

// added are none: the presets belong to the local cluster.
func added() cli.Machines { return cli.Machines{} }
