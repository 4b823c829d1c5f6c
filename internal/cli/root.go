package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
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
		newExplain(flags, streams, doctor), newTopology(flags, streams),
		newTop(flags, streams), newQuota(flags, streams), newGang(flags, streams), newQueue(flags, streams),
		newReservation(flags, streams), newMakeRoom(flags, streams), newEvictions(flags, streams),
		newCapacity(flags, streams, doctor), newWhatIf(flags, streams, doctor),
		newDoctor(flags, streams, doctor),
		newStatus(flags, streams), newSysdump(flags, streams), newLeave(flags, streams),
		newConsole(flags, streams, doctor),
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
	refuseArguments(root)
	wrapHelp(root)
	return root
}

// wrapHelp wraps help texts to the width of the terminal that shows them.
func wrapHelp(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var text strings.Builder
		out := c.OutOrStdout()
		c.SetOut(&text)
		show(c, args)
		c.SetOut(out)
		_, _ = io.WriteString(out, view.WrapLines(text.String(), progress.Width(out))) // nowhere else to tell
	})
}

func unknownVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if known := c.SuggestionsFor(args[0]); len(known) > 0 {
		meant = fmt.Sprintf(", did you mean %q?", known[0])
	}
	return usagef("unknown command %q%s (%s --help lists the commands)", args[0], meant, c.DisplayName())
}

// refuseArguments makes bad arguments of a command and those below it errors of usage.
func refuseArguments(c *cobra.Command) {
	if accept := c.Args; accept != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			var own interface{ ExitCode() int }
			if err := accept(c, args); err != nil && !errors.As(err, &own) {
				return usagef("%s: %w (%s --help shows the usage)", c.CommandPath(), err, c.CommandPath())
			} else if err != nil {
				return err
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		refuseArguments(below)
	}
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
			say(errOut, "error: %s\n", line)
		}
	}
	return code
}

// Exit codes of every verb.
const (
	ExitOK          = 0 // done, or the question is answered, whatever the answer
	ExitUnexpected  = 1
	ExitUsage       = 2 // bad usage or bad input
	ExitNegative    = 3 // with --exit-code: the answer is no
	ExitUnreachable = 4 // cluster or component unreachable, or forbidden
	ExitUnhealthy   = 5 // a check of doctor or status fails, or leave or make-room is not done
	ExitInterrupted = 130
)

// failure is an error with the exit code it asks for. Errors of other packages may bring their own ExitCode method.
type failure struct {
	code int
	err  error
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }
func (f failure) ExitCode() int { return f.code }

func usagef(format string, args ...any) error {
	return failure{ExitUsage, fmt.Errorf(format, args...)}
}

// errNegative ends a verb with ExitNegative and no message: the answer is already printed.
var errNegative = failure{ExitNegative, errors.New("the answer is negative")}

// errUnhealthy ends a verb that checks with ExitUnhealthy and no message: the findings are already printed.
var errUnhealthy = failure{ExitUnhealthy, errors.New("a check failed")}

// remedy is the text of an error and, when the API server could not be reached, what to do.
func remedy(err error) string {
	if address := (*url.Error)(nil); errors.As(err, &address) && !errors.Is(err, context.Canceled) {
		return err.Error() + " (is the cluster running? KUBECONFIG or --kubeconfig chooses it)"
	}
	return err.Error()
}

func exitCode(err error) int {
	var own interface{ ExitCode() int }
	var network net.Error
	var address *url.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &own):
		return own.ExitCode()
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTimeout(err),
		errors.As(err, &network), errors.As(err, &address):
		return ExitUnreachable
	}
	return ExitUnexpected
}
