package strict

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tenon-project/tenon/api/nearest"
)

// Flags are those of a command line. A field fooBar of a file has the flag foo-bar.
type Flags struct {
	// Given reports whether the user gave a flag. It wins over the file.
	Given func(name string) bool
	// Set sets one that was not given. It adds to a list.
	Set func(name, text string) error
	// Text returns the value.
	Text func(name string) string
}

// Setting is one field with its value in force. Origin is "default", FILE:LINE or the flag.
type Setting struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Settings are the configuration of a process: All is sorted by field.
type Settings struct {
	All []Setting `json:"settings"`
	// Warnings are about values of the file that have no effect, or one that is seldom meant. Each begins with its
	// place.
	Warnings []string `json:"-"`

	file *Document
}

// ReadFile returns the one document of a configuration file; nil without a name. Errors name the flag that the file was
// given with.
func ReadFile(flag, name string) (*Document, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	all, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%s %s: has %d documents, want one", flag, name, len(all))
	}
	return all[0], nil
}

// Apply sets the flags that a document names and the user did not give, and returns all that schema has; the document
// may be nil. Fields that are objects of their own have no flag and are left out.
func Apply(d *Document, schema any, flags Flags) (Settings, error) {
	s, names := Settings{file: d}, nearest.Fields(reflect.TypeOf(schema))
	var problems Problems
	for _, field := range slices.Sorted(maps.Keys(names)) {
		t := names[field]
		if field == "apiVersion" || field == "kind" || t.Kind() == reflect.Pointer {
			continue
		}
		name, origin := flagName(field), "default"
		switch {
		case flags.Given(name):
			origin = "--" + name
		case d != nil && d.Line(field) > 0:
			origin = fmt.Sprintf("%s:%d", d.File, d.Line(field))
			for _, text := range texts(d.values[field]) {
				if err := flags.Set(name, text); err != nil {
					problems = append(problems, d.Problem(field, "%q is not allowed: %v", text, err))
				}
			}
		}
		s.All = append(s.All, Setting{field, flags.Text(name), origin})
	}
	return s, problems.Err()
}

// Settings are the values that the document has itself, each with its line.
func (d *Document) Settings() Settings {
	s := Settings{file: d}
	for _, path := range slices.Sorted(maps.Keys(d.values)) {
		if n := d.values[path]; n.Kind == yaml.ScalarNode && path != "" {
			s.All = append(s.All, Setting{path, n.Value, fmt.Sprintf("%s:%d", d.File, d.Line(path))})
		}
	}
	return s
}

// texts are the values for a flag: of a list one for each item, of an object one for each key.
func texts(n *yaml.Node) (out []string) {
	switch {
	case n.Tag == "!!null":
		return nil
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}
	}
	for i := 0; i < len(n.Content); i++ {
		text := n.Content[i].Value
		if n.Kind == yaml.MappingNode {
			i++
			text += "=" + n.Content[i].Value
		}
		out = append(out, text)
	}
	return out
}

// flagName writes fooBarCPU as foo-bar-cpu, and fooBarCPUs as foo-bar-cpus.
func flagName(field string) string {
	words := regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z](?:[a-rt-z]|s[a-z]))`)
	return strings.ToLower(words.ReplaceAllString(field, "$1$3-$2$4"))
}

// Locate joins errors. Those that begin with a flag whose value is the file's come first, with their places.
func (s Settings) Locate(errs ...error) error {
	var located Problems
	others := slices.DeleteFunc(errs, func(err error) bool {
		if err == nil {
			return true
		}
		flag, _, _ := strings.Cut(err.Error(), " ")
		i := slices.IndexFunc(s.All, func(setting Setting) bool {
			return strings.TrimRight(flag, ":") == "--"+flagName(setting.Field) && setting.Origin != "default" &&
				!strings.HasPrefix(setting.Origin, "--")
		})
		if i >= 0 {
			located = append(located, s.file.Problem(s.All[i].Field, "%v", err))
		}
		return i >= 0
	})
	return errors.Join(append([]error{located.Err()}, others...)...)
}

// Hash names the values, wherever they come from: two processes with the same configuration have the same.
func (s Settings) Hash() string {
	sum := sha256.New()
	for _, one := range s.All {
		_, _ = fmt.Fprintf(sum, "%q=%q\n", one.Field, one.Value) // a hash takes everything
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// ServeHTTP answers with the settings, as /configz.
func (s Settings) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // the caller has gone
}
