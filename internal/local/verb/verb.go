package verb

import (
	"context"
	"embed"

	"github.com/spf13/cobra"
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
