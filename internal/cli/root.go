package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// NewRoot returns the command named name ("tenon", or "kubectl-tenon" as kubectl starts it) with the reading verbs,
// doctor and those of others.
func NewRoot(name string, streams genericiooptions.IOStreams, doctor Doctor, others ...*cobra.Command) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	display := "tenon"
	if strings.HasPrefix(name, "kubectl-") {
		display = "kubectl tenon"
	} else { // users of kubectl know its context
		flags.WrapConfigFn = NameCluster(flags, streams.ErrOut)
	}
	root := &cobra.Command{
		Use:           "tenon",
		Short:         "Show and explain the placement of pods on CPUs and GPUs",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownVerb,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		Version:       builtFrom().Tenon,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: display},
	}
	root.Flags().Bool("version", false, "print the version")
	// Linked components bring a flag of this name that does nothing, and cobra would list it at every verb.
	root.PersistentFlags().Bool("version", false, "")
	_ = root.PersistentFlags().MarkHidden("version") // it exists, one line above
	root.SuggestionsMinimumDistance = 2
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%w", err) })
	for _, verb := range []*cobra.Command{
		newExplain(flags, streams), newTopology(flags, streams),
		newTop(flags, streams), newQuota(flags, streams), newGang(flags, streams),
		newReservation(flags, streams), newMakeRoom(flags, streams), newEvictions(flags, streams),
		newCapacity(flags, streams, doctor),
		newDoctor(flags, streams, doctor),
		newStatus(flags, streams), newSysdump(flags, streams), newLeave(flags, streams), newConsole(flags, streams),
	} {
		addVerb(root, verb, flags, display)
	}
	root.AddCommand(newVersion(streams))
	root.AddCommand(others...)
	for _, verb := range others {
		if verb.Name() == "check" {
			addVerb(verb, newCheckCluster(flags, streams, doctor), flags, display)
		}
	}
	return root
}

func unknownVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if known := c.SuggestionsFor(args[0]); len(known) > 0 {
		meant = fmt.Sprintf(", did you mean %q?", known[0])
	}
	return usagef("unknown verb %q%s (%s --help lists the verbs)", args[0], meant, c.DisplayName())
}

// Run executes root and returns the process's exit code: 0 done or answered, 1 unexpected error, 2 bad usage or input,
// 3 negative answer with --exit-code, 4 unreachable or forbidden, 5 a check fails or leave has not ended, 130
// interrupted. Errors are printed to errOut.
func Run(ctx context.Context, root *cobra.Command, args []string, errOut io.Writer) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if err != nil && !errors.Is(err, errNegative) && !errors.Is(err, errUnhealthy) {
		for _, line := range strings.Split(strings.TrimSpace(remedy(err)), "\n") {
			_, _ = fmt.Fprintf(errOut, "error: %s\n", line) // nowhere else to tell
		}
	}
	return code
}
