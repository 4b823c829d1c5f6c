package verb

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/proc"
)

// JoinVerb is the hidden verb of a control plane for nodes that are not simulated: those of the agent's tests.
const JoinVerb = "__join"

// joinReady is printed, as a line, once such a control plane serves.
const joinReady = "ready"

// newJoin returns the command that runs a control plane without simulated nodes until it is ended.
func newJoin() *cobra.Command {
	var data string
	var nodes []string
	var schedulers int
	var webhooks bool
	c := &cobra.Command{
		Use:    JoinVerb,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			proc.FollowParent()
			dir, err := datadir.Resolve(data)
			if err != nil {
				return err
			}
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the binary to start the components with: %w", err)
			}
			o := cluster.Options{
				Dir: dir, Joined: nodes, Schedulers: schedulers, Binary: binary, Manifests: manifests(),
				RequireNRIPlugin: true,
				Report:           func(s cluster.Step) { fmt.Fprintf(c.OutOrStdout(), "%s (%v)\n", s.Text, s.Took) },
			}
			if webhooks {
				o.Admission = admission()
			}
			return runJoin(c, o)
		},
	}
	c.Flags().StringVar(&data, "data", "", "folder of the cluster's data")
	c.Flags().StringSliceVar(&nodes, "node", nil,
		"names of the nodes, which get the credentials of a kubelet and an agent")
	c.Flags().IntVar(&schedulers, "schedulers", 0, "number of schedulers")
	c.Flags().BoolVar(&webhooks, "webhooks", false, "start the manager with its webhooks")
	return c
}

func runJoin(c *cobra.Command, o cluster.Options) error {
	if len(o.Joined) == 0 {
		return fmt.Errorf("%s: --node is missing", JoinVerb)
	}
	running, err := cluster.Start(c.Context(), o)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), joinReady)
	err = running.Wait(c.Context())
	return errors.Join(err, running.Stop())
}
