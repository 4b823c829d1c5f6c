// Command text checks texts that people read, in every file of the repository:
//
//	text words -most N    words that are not plain technical English
//	text names -most N    declarations of Go whose names have private words, or say nothing: is, of, by
//	text lines -most N    lines of Go with more than 120 columns, and blocks that join statements on one line
//	text patterns -most N constructions in texts for users that Kubernetes' own documentation does not have
//
// It prints the number of hits of each folder and ends with 1 above N; -v prints each hit.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// hit is one thing to mend.
type hit struct {
	file string
	line int
	text string
}

// checks by name; each returns the hits of one file.
var checks = map[string]func(file string, content []byte) []hit{
	"words": words, "names": names, "lines": lines, "patterns": badPatterns,
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	names := strings.Join(slices.Sorted(maps.Keys(checks)), " or ")
	if len(args) == 0 || checks[args[0]] == nil {
		return fmt.Errorf("name a check: %s", names)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	most := flags.Int("most", 0, "number of hits that are accepted")
	verbose := flags.Bool("v", false, "print each hit")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	files, err := tracked()
	if err != nil {
		return err
	}
	var hits []hit
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and not yet committed
		}
		if err != nil {
			return err
		}
		if written(file, content) {
			hits = append(hits, checks[args[0]](file, content)...)
		}
	}
	if *verbose {
		for _, h := range hits {
			fmt.Fprintf(out, "%s:%d: %s\n", h.file, h.line, h.text)
		}
	}
	report(out, hits)
	if len(hits) > *most {
		return fmt.Errorf("%s: %d hits, want at most %d", args[0], len(hits), *most)
	}
	return nil
}

// tracked lists the files of the repository, those not yet committed too.
func tracked() ([]string, error) {
	list := exec.CommandContext(context.Background(), "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// written reports whether a person writes this file: no program does, and it is no licence, checksum or picture.
func written(file string, content []byte) bool {
	switch path.Base(file) {
	case "LICENSE", "go.sum", "go.tools.sum":
		return false
	}
	head := content[:min(len(content), 1024)]
	return !strings.Contains(file, "testdata/") && !bytes.Contains(head, []byte("DO NOT EDIT")) &&
		bytes.IndexByte(head, 0) < 0
}

// folderOf is what a hit is counted under: internal/agent, docs, or "." for files of the root.
func folderOf(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	if parts[0] == "internal" || parts[0] == "test" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

func report(out io.Writer, hits []hit) {
	count := map[string]int{}
	for _, h := range hits {
		count[folderOf(h.file)]++
	}
	folders := slices.Collect(maps.Keys(count))
	slices.SortFunc(folders, func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	for _, f := range folders {
		fmt.Fprintf(out, "%6d %s\n", count[f], f)
	}
	fmt.Fprintf(out, "%6d in all\n", len(hits))
}
