// Command results prints what benchmarks measured, from the files beside it, as Markdown: all of it, or the files that
// are named.
//
//	go run ./test/bench/results [NAME…]
//
// A file has the commands that repeat its measurements, the conditions under which they were made, and a table for each
// kind of measurement. recorded is the commit that wrote the first figures of a table into the repository; where the
// conditions name a commit, that one was measured.
package main

import (
	"embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// measurement is one file.
type measurement struct {
	Title      string   `json:"title"`
	Repeat     []string `json:"repeat"`
	Conditions string   `json:"conditions"`
	Tables     []table  `json:"tables"`
}

// table holds figures. Invariant: a row has a cell for each column.
type table struct {
	Name     string     `json:"name"`
	Recorded string     `json:"recorded"`
	Columns  []string   `json:"columns"`
	Rows     [][]string `json:"rows"`
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

// names returns the files without their extension, sorted.
func names() (all []string) {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		all = append(all, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return all
}

func run(out io.Writer, asked []string) error {
	known := names()
	for _, name := range asked {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no file %q: use %s", name, strings.Join(known, ", "))
		}
	}
	if len(asked) == 0 {
		asked = known
	}
	for _, name := range asked {
		m, err := read(name)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, m.markdown()); err != nil {
			return err
		}
	}
	return nil
}

// read returns the measurement of a file, whose fields are all known and whose rows are complete.
func read(name string) (m measurement, err error) {
	text, err := files.ReadFile(name + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("%s.yaml: %w", name, err)
	}
	if m.Title == "" || len(m.Repeat) == 0 || m.Conditions == "" || len(m.Tables) == 0 {
		return m, fmt.Errorf("%s.yaml: title, repeat, conditions and tables must not be empty", name)
	}
	for _, t := range m.Tables {
		if t.Name == "" || t.Recorded == "" || len(t.Rows) == 0 {
			return m, fmt.Errorf("%s.yaml: name, recorded and rows of each table must not be empty", name)
		}
		for i, row := range t.Rows {
			if len(row) != len(t.Columns) {
				return m, fmt.Errorf("%s.yaml: table %q, row %d: has %d cells, must have %d",
					name, t.Name, i+1, len(row), len(t.Columns))
			}
		}
	}
	return m, nil
}

func (m *measurement) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n```\n%s\n```\n\n%s\n\n", m.Title, strings.Join(m.Repeat, "\n"), m.Conditions)
	for _, t := range m.Tables {
		fmt.Fprintf(&out, "%s (recorded by commit `%s`):\n\n", t.Name, t.Recorded)
		line := func(cells []string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
		line(t.Columns)
		line(slices.Repeat([]string{"---"}, len(t.Columns)))
		for _, row := range t.Rows {
			line(row)
		}
		out.WriteString("\n")
	}
	return out.String()
}
