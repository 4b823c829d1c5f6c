//go:build !nolocal

package main

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/local/verb"
	"github.com/tenon-project/tenon/internal/sim"
)

func localVerbs(streams genericiooptions.IOStreams) []*cobra.Command {
	return append(verb.Commands(doctors.StartConsole), newKubectl(streams))
}

// machines are those that simulate takes with --machine.
func machines() sim.Machines {
	return sim.Machines{Objects: verb.MachineObjects, Presets: verb.Presets()}
}

// added are the machines that capacity takes with --add.
func added() cli.Machines {
	return cli.Machines{Objects: verb.MachineObjects, Presets: verb.Presets()}
}
