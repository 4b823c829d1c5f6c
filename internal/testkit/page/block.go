package page

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// Block is a block of code on a page.
type Block struct {
	File           string // from the root of the repository
	Line           int
	Language, Text string
	above          string // the paragraph before it
}

// String is where the block is.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// fence is a block, also one that is indented below an item of a list.
var fence = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")

// Blocks returns those of all pages of the repository.
func Blocks(tb testing.TB) (all []Block) {
	tb.Helper()
	for _, p := range pages(tb) {
		text := p.Text
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			inside := strings.ReplaceAll("\n"+text[at[6]:at[7]], "\n"+text[at[2]:at[3]], "\n")
			above := strings.TrimSpace(text[:at[0]])
			above = above[strings.LastIndex(above, "\n\n")+1:]
			line := strings.Count(text[:at[0]], "\n") + 2
			all = append(all, Block{p.File, line, text[at[4]:at[5]], inside[1:], above})
		}
	}
	return all
}

// span is code within a sentence.
var span = regexp.MustCompile("`([^`\n]+)`")

// Spans returns the code within the sentences of all pages, each as a block of a line.
func Spans(tb testing.TB) (all []Block) {
	tb.Helper()
	for _, p := range pages(tb) {
		text := fence.ReplaceAllStringFunc(p.Text, func(block string) string {
			return strings.Repeat("\n", strings.Count(block, "\n"))
		})
		for _, at := range span.FindAllStringSubmatchIndex(text, -1) {
			all = append(all, Block{
				File: p.File, Line: strings.Count(text[:at[0]], "\n") + 1, Text: text[at[2]:at[3]] + "\n",
			})
		}
	}
	return all
}

// pages returns each page as one block.
func pages(tb testing.TB) (all []Block) {
	tb.Helper()
	root := testkit.RepoRoot(tb)
	read := func(path string) error {
		text, err := os.ReadFile(path)
		all = append(all, Block{File: strings.TrimPrefix(path, root+"/"), Line: 1, Text: string(text)})
		return err
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		return read(path)
	})
	for _, file := range []string{
		"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "ROADMAP.md",
		"CHANGELOG.md",
	} {
		err = errors.Join(err, read(filepath.Join(root, file)))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Documents are those of a block of YAML.
func (b Block) Documents() []string { return strings.Split(b.Text, "\n---\n") }

// isFile reports whether a block is a file or, as "text", a drawing: neither commands nor what they print.
func (b Block) isFile() bool {
	return slices.Contains([]string{"yaml", "json", "toml", "text"}, b.Language)
}

// named is how a page names a file: before the block, or in its first line.
var named = regexp.MustCompile("`([a-z]+\\.yaml)`[^`]*$|^# ([a-z]+\\.yaml)\n")

// files returns the blocks of YAML of a page by their numbers (1.yaml), and by the names that the page has for them.
func files(tb testing.TB, text string) map[string]string {
	tb.Helper()
	found, number := map[string]string{}, 0
	for _, b := range Blocks(tb) {
		if b.File != text || b.Language != "yaml" {
			continue
		}
		number++
		found[fmt.Sprintf("%d.yaml", number)] = b.Text
		for _, m := range append(named.FindAllStringSubmatch(b.above, -1), named.FindStringSubmatch(b.Text)) {
			if m != nil {
				found[cmp.Or(m[1], m[2])] = b.Text
			}
		}
	}
	return found
}
