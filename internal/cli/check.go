package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/help"
)

// Checks are what the verb check asks of the components, which the command line does not know.
type Checks struct {
	// Config checks a document of a configuration file, by its kind, and returns the settings that it gives, if the
	// kind has any.
	Config map[string]func(*strict.Document) (strict.Settings, error)
	// Manifests returns what the webhooks refuse, a line each. An error is of what cannot be read.
	Manifests func(ctx context.Context, files []string, in io.Reader, warn io.Writer) ([]string, error)
}

// NewCheck returns the verb check.
func NewCheck(streams genericiooptions.IOStreams, checks Checks) *cobra.Command {
	var effective bool
	var schema string
	c := help.Command(texts, "check", &cobra.Command{
		ValidArgs: []string{"config", "manifest", "values"}, // and cluster, which is a verb below
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 || !slices.Contains(c.ValidArgs, args[0]) {
				return usagef("give config, manifest or values, and files")
			}
			var errs []error
			if args[0] == "manifest" {
				refused, err := checks.Manifests(c.Context(), args[1:], streams.In, streams.ErrOut)
				if errs = append(errs, err); len(refused) > 0 {
					errs = append(errs, errors.New(strings.Join(refused, "\n")))
				}
			} else {
				for _, file := range args[1:] {
					settings, err := checks.file(args[0], file, schema)
					errs = append(errs, err)
					for _, s := range settings.All {
						if effective {
							_, _ = fmt.Fprintf(streams.Out, "%-26s %-40s %s\n", s.Field, s.Value, s.Origin)
						}
					}
				}
			}
			if err := errors.Join(errs...); err != nil {
				return usagef("%w", err)
			}
			_, err := fmt.Fprintf(streams.Out, "%s: ok\n", strings.Join(args[1:], ", "))
			return err
		},
	})
	c.Flags().BoolVar(&effective, "effective", false, "print every setting of a file with its value and origin")
	c.Flags().StringVar(&schema, "schema", "deploy/chart/values.schema.json", "schema `file` of the chart's values")
	return c
}

// file checks all documents of a file.
func (c *Checks) file(what, name, schema string) (settings strict.Settings, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return settings, err
	}
	all, err := strict.Parse(name, text)
	errs := []error{err}
	for i, d := range all {
		check := c.Config[d.Kind()]
		switch {
		case what == "values":
			err = checkValues(d, schema)
		case check == nil:
			err = d.Problem("kind", "%q is not a configuration file: use %s", d.Kind(),
				strings.Join(slices.Sorted(maps.Keys(c.Config)), ", "))
		default:
			settings, err = check(d)
		}
		if err != nil && len(all) > 1 {
			err = fmt.Errorf("document %d: %w", i+1, err)
		}
		errs = append(errs, err)
	}
	return settings, errors.Join(errs...)
}

func checkValues(d *strict.Document, schema string) error {
	text, err := os.ReadFile(schema)
	if err != nil {
		return fmt.Errorf("--schema: %w: it is in the chart", err)
	}
	var definition spec.Schema
	if err := json.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("--schema %s: %w", schema, err)
	}
	permitParts(&definition)
	var values any
	problems := d.Decode("", &values)
	if len(problems) > 0 {
		return problems
	}
	for _, wrong := range validate.NewSchemaValidator(&definition, nil, "", strfmt.Default).Validate(values).Errors {
		field, says, _ := strings.Cut(wrong.Error(), " in body ")
		problems = append(problems, d.Problem(strings.TrimPrefix(field, "."), "%s", says))
	}
	return problems.Err()
}

// permitParts makes a schema accept files that have a part of the values: Helm adds the defaults of the others before
// it checks them.
func permitParts(schema *spec.Schema) {
	schema.Required = nil
	for name, property := range schema.Properties {
		permitParts(&property)
		schema.Properties[name] = property
	}
}
