package verb

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/simnode"
)

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
