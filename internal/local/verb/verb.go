package verb

import "github.com/spf13/cobra"

// Commands returns the verbs of a local cluster. show draws the map of the demo.
func Commands(show Show) []*cobra.Command {
	return []*cobra.Command{newUp(show), newDown(), newScheduler(), newManager(), newNodes(), newJoin()}
}
