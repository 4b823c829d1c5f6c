package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"
)

// formats of -o that every reading verb knows.
var formats = []string{"table", "json", "yaml"}

func checkFormat(format string, more ...string) error {
	allowed := slices.Concat(more, formats)
	if slices.Contains(allowed, format) {
		return nil
	}
	return usagef("-o %s is not allowed: use %s", format, strings.Join(allowed, ", "))
}

type listFlags struct {
	format, selector string
	watch            bool
}

// wide is the format that adds columns and cuts no line.
const wide = "wide"

// add defines the flags; what names what is selected by its labels.
func (f *listFlags) add(c *cobra.Command, what string) {
	c.Flags().StringVarP(&f.format, "output", "o", "table", "table, wide, json or yaml")
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "show only "+what+" with these labels, such as a=b")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print the answer again whenever it changes")
}

// check refuses what the flags may not be; name is the argument of the verb.
func (f *listFlags) check(name string) error {
	if err := checkFormat(f.format, wide); err != nil {
		return err
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return usagef("-l %s is not a label selector: %v", f.selector, err)
	}
	if f.selector != "" && name != "" {
		return usagef("-l and a name exclude each other")
	}
	return nil
}

// width returns that of the terminal, 0 = unlimited.
func (f *listFlags) width(out io.Writer) int {
	if f.format == wide {
		return 0
	}
	return terminalWidth(out)
}

// show writes what the API says of a node, or of all nodes for "", with --watch again and again.
func (f *listFlags) show(ctx context.Context, flags *genericclioptions.ConfigFlags, out io.Writer, node string,
	write func(io.Writer, *account) error,
) error {
	cl, err := connect(flags)
	if err != nil {
		return err
	}
	return repeat(ctx, f.watch, watchInterval, out, func(w io.Writer) error {
		a, err := cl.load(ctx, node, f.selector)
		if err != nil {
			return err
		}
		return write(w, a)
	})
}

func outputFlag(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "output", "o", "table", "table, json or yaml")
}

// apiVersion of lists that the command line prints as JSON.
const apiVersion = "cli.tenon.sh/v1"

// list is the JSON form of an answer of several things, sorted.
type list[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

func newList[T any](kind string, items []T) list[T] {
	return list[T]{apiVersion, kind, append([]T{}, items...)}
}

// printChecks prints the answer of a verb that checks. A check that failed sets the exit code.
func printChecks(w io.Writer, format string, answer interface {
	Print(w io.Writer) error
	Healthy() bool
},
) error {
	err := printAnswer(w, format, answer, func() string {
		var text strings.Builder
		_ = answer.Print(&text) // a Builder takes everything
		return text.String()
	})
	if err == nil && !answer.Healthy() {
		return errUnhealthy
	}
	return err
}

func printAnswer(w io.Writer, format string, v any, table func() string) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(v)
	default:
		text = []byte(table())
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = w.Write(text)
	return err
}
