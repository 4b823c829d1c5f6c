package web_test

import (
	"compress/gzip"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/web"
)

// mostBytes bounds what a browser loads of the console, compressed as proxies compress it.
const mostBytes = 76_000

type counter int

func (c *counter) Write(text []byte) (int, error) {
	*c += counter(len(text))
	return len(text), nil
}

func TestThePagesAreSmall(t *testing.T) {
	t.Parallel()
	var size counter
	files := 0
	testkit.Check(t, fs.WalkDir(web.Files(), ".", func(path string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web.Files(), path)
		if err != nil {
			return err
		}
		files++
		compressed := gzip.NewWriter(&size)
		if _, err := compressed.Write(text); err != nil {
			return err
		}
		return compressed.Close()
	}))
	if files < 3 || size > mostBytes {
		t.Errorf("%d files are %d bytes compressed, want 3 or more of at most %d", files, size, mostBytes)
	}
}

// Both texts of a key, as src/text.ts lists them.
var pair = regexp.MustCompile(`(?m)^  (\w+): \[\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)",?\s*\],$`)

func TestEveryTextIsTranslated(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("src/text.ts")
	testkit.Check(t, err)
	pairs := pair.FindAllStringSubmatch(string(source), -1)
	if keys := regexp.MustCompile(`(?m)^  \w+: \[`).FindAll(source, -1); len(pairs) < 100 || len(pairs) != len(keys) {
		t.Fatalf("read %d pairs of %d keys, want all of 100 or more", len(pairs), len(keys))
	}
	// Kubernetes' Chinese documentation leaves these words in English.
	kept := []string{"Pod", "CPU", "GPU"}
	for _, p := range pairs {
		key, english, chinese := p[1], p[2], p[3]
		latin := !regexp.MustCompile(`\p{Han}`).MatchString(chinese) && hasLetter(chinese)
		if chinese == "" || latin && !slices.Contains(kept, chinese) {
			t.Errorf("%s: %q is not translated: %q", key, english, chinese)
		}
		if got, want := placeholders(chinese), placeholders(english); !maps.Equal(got, want) {
			t.Errorf("%s: Chinese placeholders are %v, want those of the English text, %v", key, got, want)
		}
	}
}

// written is text between tags, or after an expression.
var written = regexp.MustCompile("[^=][>}]([^<>{}=;()&|?:,\"'`$\n]*\\p{L}{3,}[^<>{}=;()&|?:,\"'`$\n]*)[<{]")

// TestPagesWriteTextsOfTheTable: what stands in a page itself is a name that no language translates.
func TestPagesWriteTextsOfTheTable(t *testing.T) {
	t.Parallel()
	names := []string{
		"Tenon", "Ctrl K", "Esc", "CPU", "GPU", "NUMA", "min", "NotReady", "● Ready", "cpuset.cpus", "catch",
	}
	found := 0
	testkit.Check(t, fs.WalkDir(os.DirFS("src"), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".tsx") {
			return err
		}
		source, err := os.ReadFile(filepath.Join("src", path))
		for _, match := range written.FindAllSubmatch(source, -1) {
			text := strings.TrimSpace(string(match[1]))
			found++
			if !slices.Contains(names, text) {
				t.Errorf("%s: %q is not in the table of texts", path, text)
			}
		}
		return err
	}))
	if found < 5 {
		t.Errorf("only %d texts were found", found)
	}
}

func placeholders(text string) map[string]int {
	counts := map[string]int{}
	for _, placeholder := range regexp.MustCompile(`\{\d\}`).FindAllString(text, -1) {
		counts[placeholder]++
	}
	return counts
}

func hasLetter(text string) bool {
	return slices.ContainsFunc([]rune(regexp.MustCompile(`\{\d\}`).ReplaceAllString(text, "")), unicode.IsLetter)
}
