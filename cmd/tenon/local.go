//go:build !nolocal

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/local/verb"
)

func localVerbs() []*cobra.Command { return verb.Commands(topology) }

// topology is what `tenon topology` shows of the cluster that a kubeconfig leads to.
func topology(ctx context.Context, kubeconfig string, out, errOut io.Writer) error {
	root := cli.NewRoot("tenon", genericiooptions.IOStreams{Out: out, ErrOut: errOut})
	if code := cli.Run(ctx, root, []string{"topology", "--kubeconfig", kubeconfig}, errOut); code != cli.ExitOK {
		return errors.New("the machines could not be read")
	}
	return nil
}
