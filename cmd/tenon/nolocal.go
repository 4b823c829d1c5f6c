//go:build nolocal

package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/sim"
)

// localVerbs: kubectl-tenon has no control plane in it.
func localVerbs(genericiooptions.IOStreams) []*cobra.Command { return nil }

// machines refuses --machine: the presets belong to the local cluster.
func machines([]string) ([]runtime.Object, error) {
	return nil, &sim.InputError{Problems: []string{
		"kubectl-tenon has no simulated machines: use tenon simulate, or give Nodes with -f or --cluster",
	}}
}
