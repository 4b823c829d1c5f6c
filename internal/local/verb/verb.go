package verb

import (
	"context"
	"embed"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/simnode"
)

// ServeConsole serves the console of the cluster of a kubeconfig on an address until ctx ends, and returns what users
// open.
type ServeConsole func(ctx context.Context, kubeconfig, address string) (string, error)

// texts are those of the verbs.
//
//go:embed help
var texts embed.FS

// Commands returns the verbs of a local cluster.
func Commands(serve ServeConsole) []*cobra.Command {
	return []*cobra.Command{
		newUp(serve), newDown(), newScheduler(), newManager(), newDescheduler(), newNodes(), newJoin(),
	}
}

// Presets returns the names of the built-in machines.
func Presets() (names []string) {
	for _, d := range machine.Presets() {
		names = append(names, d.Name)
	}
	return names
}

// MachineObjects returns the Nodes, NodeResourceTopologies and Devices of the machines that specs name, as `tenon up`
// starts them. The error of a spec that is not allowed is a *cluster.ExitError.
func MachineObjects(specs []string) ([]runtime.Object, error) {
	nodes, err := cluster.Expand(specs, 0)
	if err != nil {
		return nil, err
	}
	known := map[string]machine.Description{} // by spec: thousands of nodes may share one
	read := map[string]*topo.Machine{}
	objects := make([]runtime.Object, 0, 2*len(nodes))
	for _, n := range nodes {
		if read[n.Machine] == nil {
			d, _, err := machine.Parse(n.Machine)
			if err != nil {
				return nil, &cluster.ExitError{Err: err, Code: 2}
			}
			if read[n.Machine], err = d.Read(); err != nil {
				return nil, fmt.Errorf("machine %s: %w", n.Machine, err)
			}
			known[n.Machine] = d
		}
		more, err := simnode.Objects(n.Name, known[n.Machine], read[n.Machine])
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", n.Machine, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}
