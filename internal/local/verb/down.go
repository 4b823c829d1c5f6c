package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
)

const downLimit = time.Minute

func newDown() *cobra.Command {
	var data string
	var purge bool
	c := help.Command(texts, "down", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := datadir.Resolve(data)
			if err == nil && data == "" {
				err = checkKubeconfig(dir, os.Getenv("KUBECONFIG"))
			}
			if err != nil {
				return err
			}
			return cluster.Explain(down(c.Context(), dir, purge, c.OutOrStdout()), dir)
		},
	})
	c.Flags().StringVar(&data, "data", "", "folder of the cluster's data (default ~/.tenon)")
	c.Flags().BoolVar(&purge, "purge", false, "remove the data too")
	return c
}

// checkKubeconfig refuses to stop the cluster in the default folder while KUBECONFIG names another cluster, which the
// user may mean.
func checkKubeconfig(dir datadir.Dir, inUse string) error {
	for _, path := range filepath.SplitList(inUse) {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return fmt.Errorf("resolve KUBECONFIG %s: %w", path, err)
		}
		if absolute == dir.Kubeconfig() {
			return nil
		}
	}
	if inUse == "" {
		return nil
	}
	err := fmt.Errorf("KUBECONFIG is %s, which is not the cluster in %s: name the cluster to stop with --data", inUse,
		dir.Root())
	return &cluster.ExitError{Err: err, Code: 2}
}

func down(ctx context.Context, dir datadir.Dir, purge bool, out io.Writer) error {
	owner, running, err := dir.Running()
	if err != nil {
		return err
	}
	text := "no cluster runs on " + dir.Root()
	if running {
		if err := stop(ctx, dir, owner); err != nil {
			return err
		}
		text = "stopped"
	}
	if purge {
		if err := dir.Purge(); err != nil {
			return err
		}
		text += "; " + dir.Root() + " is removed"
	} else if running {
		text += "; the data are kept in " + dir.Root()
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// stop asks the owner to stop and waits until it has let go of the folder.
func stop(ctx context.Context, dir datadir.Dir, owner datadir.Owner) error {
	if err := owner.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the cluster on %s: %w", dir.Root(), err)
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, downLimit, false,
		func(context.Context) (bool, error) {
			_, running, err := dir.Running()
			return !running, err
		})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("process %d still runs the cluster after %v; its log is %s", owner.PID, downLimit,
			dir.Log("up"))
	}
	return err
}
