package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

// formatsOf returns the formats of -o that a verb knows: those of every verb that reads, and more.
func formatsOf(more ...string) []string {
	return append([]string{"table"}, append(more, "json", "yaml", "jsonpath=TEMPLATE")...)
}

// outputFlag defines -o with the formats of every verb that reads, and more. The verb refuses others before it runs.
func outputFlag(c *cobra.Command, format *string, more ...string) {
	c.PreRunE = func(*cobra.Command, []string) error { return checkFormat(*format, more...) }
	all := formatsOf(more...)
	last := len(all) - 1
	c.Flags().StringVarP(format, "output", "o", "table", strings.Join(all[:last], ", ")+" or "+all[last])
	complete := append(slices.Clone(all[:last]), "jsonpath=")
	utilruntime.Must(c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(complete, cobra.ShellCompDirectiveNoFileComp)))
}

func checkFormat(format string, more ...string) error {
	if strings.HasPrefix(format, "jsonpath") {
		if _, err := jsonPathPrinter(format); err != nil {
			return usagef("-o %s: %v; use jsonpath=TEMPLATE, such as jsonpath={.items[*].name}", format, err)
		}
		return nil
	}
	if all := formatsOf(more...); !slices.Contains(all, format) {
		return usagef("-o %s is not allowed: use %s", format, strings.Join(all, ", "))
	}
	return nil
}

func jsonPathPrinter(format string) (printers.ResourcePrinter, error) {
	return genericclioptions.NewJSONPathPrintFlags("", true).ToPrinter(format)
}

type listFlags struct {
	format, selector string
	watch            bool
}

// Formats of verbs that list objects.
const (
	wide       = "wide" // adds columns and cuts no line
	nameFormat = "name" // KIND/NAME of each object, a line for each
)

// add defines the flags; what names what is selected by its labels.
func (f *listFlags) add(c *cobra.Command, what string) {
	outputFlag(c, &f.format, wide, nameFormat)
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "show only "+what+" with these labels, such as a=b")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print the answer again when something other than an age changes")
}

// check refuses what the flags may not be, beside an argument of the verb.
func (f *listFlags) check(argument string) error {
	if _, err := labels.Parse(f.selector); err != nil {
		return usagef("-l %s is not a label selector: %v", f.selector, err)
	}
	if f.selector != "" && argument != "" {
		return usagef("-l and a name exclude each other")
	}
	return nil
}

// width returns that of the terminal, 0 = unlimited.
func (f *listFlags) width(out io.Writer) int { return widthFor(f.format, out) }

func widthFor(format string, out io.Writer) int {
	if format == wide {
		return 0
	}
	return terminalWidth(out)
}

// terminalWidth returns the columns of the terminal to which an answer goes, also one that is watched; 0 for none.
func terminalWidth(w io.Writer) int {
	if again, ok := w.(*watched); ok {
		return again.width
	}
	return progress.Width(w)
}

// say writes a text beside an answer, wrapped to the terminal that shows it.
func say(out io.Writer, format string, args ...any) {
	// nowhere else to tell
	_, _ = io.WriteString(out, view.WrapLines(fmt.Sprintf(format, args...), terminalWidth(out)))
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
	Print(w io.Writer, width int) error
	Healthy() bool
},
) error {
	err := printAnswer(w, format, answer, func() string {
		var text strings.Builder
		_ = answer.Print(&text, terminalWidth(w)) // a Builder takes everything
		return text.String()
	})
	if err == nil && !answer.Healthy() {
		return errUnhealthy
	}
	return err
}

// printAnswer prints an answer in a format that checkFormat allows; words are what -o name prints. Tables fit a
// terminal by themselves, and the texts beside them are wrapped here.
func printAnswer(w io.Writer, format string, v any, table func() string, words ...string) error {
	var text []byte
	var err error
	if again, ok := w.(*watched); ok {
		if err = again.compareBy(v); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	switch {
	case strings.HasPrefix(format, "jsonpath"):
		return printJSONPath(w, format, v)
	case format == nameFormat:
		text = []byte(strings.Join(append(slices.Compact(words), ""), "\n"))
	case format == "json":
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	case format == "yaml":
		text, err = yaml.Marshal(v)
	default:
		text = []byte(view.WrapLines(table(), widthFor(format, w)))
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// printJSONPath prints the parts of the JSON of an answer that a template names, as kubectl does.
func printJSONPath(w io.Writer, format string, v any) error {
	printer, err := jsonPathPrinter(format)
	if err != nil {
		return err
	}
	var o unstructured.Unstructured
	text, err := json.Marshal(v)
	if err == nil {
		err = utiljson.Unmarshal(text, &o.Object)
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if err := printer.PrintObj(&o, w); err != nil {
		return usagef("-o %s: %v", format, err)
	}
	return nil
}

// namesOf returns KIND/NAME of each item.
func namesOf[T any](kind string, items []T, nameOf func(*T) string) (words []string) {
	for i := range items {
		words = append(words, kind+"/"+nameOf(&items[i]))
	}
	return words
}

const watchInterval = 2 * time.Second

// homeAndClear moves a terminal's cursor to the top left and clears what is below.
const homeAndClear = "\x1b[H\x1b[2J"

// watched is one answer of a verb that is called again and again.
type watched struct {
	bytes.Buffer
	// content is what of the answer counts as a change: its JSON without ages. It is the text of an answer that
	// printAnswer has not printed.
	content string
	width   int // of the terminal that shows the answer
}

// passing are the keys of values that change with time alone.
var passing = []string{
	"ages", "backoffSeconds", "generation", "leaseEnds", "reportSeconds", "verifiedAt",
}

// compareBy sets the content to the JSON of an answer, without what changes with time alone.
func (w *watched) compareBy(answer any) error {
	text, err := json.Marshal(answer)
	var content any
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err == nil {
		removePassing(content)
		text, err = json.Marshal(content)
	}
	w.content = string(text)
	return err
}

func removePassing(content any) {
	switch c := content.(type) {
	case map[string]any:
		for key, value := range c {
			if slices.Contains(passing, key) {
				delete(c, key)
			} else {
				removePassing(value)
			}
		}
	case []any:
		for _, value := range c {
			removePassing(value)
		}
	}
}

// repeat calls show, and with watch calls it again until ctx ends. An answer is written when something other than an
// age differs from the one before; on a terminal it replaces that one.
func repeat(ctx context.Context, watch bool, every time.Duration, out io.Writer, show func(io.Writer) error) error {
	if !watch {
		return show(out)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		answer := watched{width: progress.Width(out)}
		if err := show(&answer); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		text := answer.String()
		if content := cmp.Or(answer.content, text); content != last {
			last = content
			if progress.Width(out) > 0 {
				text = homeAndClear + text
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
