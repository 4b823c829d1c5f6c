package verb

import "github.com/spf13/cobra"

// Commands returns the verbs of a local cluster.
func Commands() []*cobra.Command {
	return []*cobra.Command{newUp(), newDown(), newScheduler(), newManager(), newDescheduler(), newNodes(), newJoin()}
}
