// Command tenon starts local clusters, and shows where pods run on the CPUs of a cluster's machines and why.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/sim/shadow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops in order, the second one at once.
	context.AfterFunc(ctx, stop)
	if local := cli.LocalCluster(os.Getenv); local != "" {
		if err := os.Setenv("KUBECONFIG", local); err != nil {
			panic(err) // neither the name nor the value can be wrong
		}
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	rest.SetDefaultWarningHandler(cli.ServerWarnings{Out: streams.ErrOut})
	verbs := append(localVerbs(streams), sim.NewCommand(streams, machines()), sim.NewReplayCommand(streams),
		shadow.NewCommand(streams), cli.NewCheck(streams, checks()))
	name, args := cli.Invocation(os.Args)
	os.Exit(cli.Run(ctx, cli.NewRoot(name, streams, doctors, verbs...), args, os.Stderr))
}
