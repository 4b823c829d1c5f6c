package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// key matches labels, annotations, resources and conditions of Tenon's, Koordinator's and Volcano's domains.
var key = regexp.MustCompile(`^([a-z0-9.-]+\.)?(koordinator|tenon|volcano)\.sh/[A-Za-z-]+$`)

// notKeys are strings that look like keys.
var notKeys = []string{
	"cli.tenon.sh/v",     // the version of what the command line prints
	"tenon.sh/gpu",       // a kind of devices of the Container Device Interface
	"tenon.sh/placement", // the scheduler's own state of a cycle
	"tenon.sh/load",      // a part of its signature of pods
}

// The pages of keys are written from api/annotation, that of Events from api/event: a key that is spelled anywhere else
// would be missing there.
func TestEveryKeyIsInTheReference(t *testing.T) {
	var pages strings.Builder
	for _, page := range []string{"keys.md", "support.md", "events.md"} {
		text, err := os.ReadFile(filepath.Join(root(t), "docs", "reference", page))
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	listed := func(text string) bool {
		for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(pages.String(), -1) {
			name := strings.Trim(quoted, "`")
			prefix, many := strings.CutSuffix(name, "*")
			if name == text || "tenon.sh/"+name == text || many && strings.HasPrefix(text, prefix) {
				return true
			}
		}
		return false
	}
	for _, folder := range []string{"api", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err == nil && key.MatchString(text) && !slices.Contains(notKeys, text) && !listed(text) {
					t.Errorf("%s: %s is in none of the reference pages", files.Position(literal.Pos()), text)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPagesOfMeasurementsAreShort: what was measured, the table and how to repeat it. Commits, loads and older figures
// are data in test/bench/results.
func TestPagesOfMeasurementsAreShort(t *testing.T) {
	for page, most := range map[string]int{
		"performance.md": 2500, "testing.md": 1800, "placement.md": 900, "oracle.md": 700, "waiting.md": 950,
	} {
		text, err := os.ReadFile(filepath.Join(root(t), "docs", "reference", page))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(text))); n > most {
			t.Errorf("%s has %d words, want at most %d", page, n, most)
		}
	}
}
