package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// formats of -o that every reading verb knows.
var formats = []string{"table", "json", "yaml"}

func checkFormat(format string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return usagef("-o %s is not allowed: use %s", format, strings.Join(formats, ", "))
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
	if items == nil {
		items = []T{}
	}
	return list[T]{apiVersion, kind, items}
}

// printAnswer writes v as JSON or YAML, or calls table.
func printAnswer(w io.Writer, format string, v any, table func(io.Writer) error) error {
	switch format {
	case "json":
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	return table(w)
}
