package page

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestLinksLeadToPagesAndHeadings of this repository; those to other sites are not followed.
func TestLinksLeadToPagesAndHeadings(t *testing.T) {
	t.Parallel()
	link, heading := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`(?m)^#+ (.*)$`)
	ofHost := regexp.MustCompile(`^\.\./\.\./(actions/workflows/test\.yaml|releases)`) // of the site that has the code
	other, followed := regexp.MustCompile(`[^\pL\pN _-]`), 0
	root, all := testkit.RepoRoot(t), pages(t)
	anchors := map[string]bool{}
	for _, p := range all {
		for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(p.Text, ""), -1) {
			text := other.ReplaceAllString(strings.ToLower(link.ReplaceAllString(h[1], "]")), "")
			anchors[p.File+"#"+strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	for _, p := range all {
		text := span.ReplaceAllString(fence.ReplaceAllString(p.Text, ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || ofHost.MatchString(m[1]) {
				continue
			}
			followed++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := p.File
			if file != "" {
				to = filepath.Join(filepath.Dir(p.File), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s: %v", p.File, m[1], err)
			} else if anchor != "" && !anchors[to+"#"+anchor] {
				t.Errorf("%s: %s: no such heading", p.File, m[1])
			}
		}
	}
	if followed < 100 {
		t.Errorf("%d links", followed)
	}
}

// TestEachGuideHasAPicture: an image, or a drawing or map made of text.
func TestEachGuideHasAPicture(t *testing.T) {
	t.Parallel()
	image, guides := regexp.MustCompile(`!\[[^\]]+\]\([^)\s]+\)`), map[string]bool{}
	for _, p := range pages(t) {
		if filepath.Dir(p.File) == "docs/guide" {
			guides[p.File] = image.MatchString(p.Text)
		}
	}
	for _, b := range Blocks(t) {
		if has, ok := guides[b.File]; ok {
			guides[b.File] = has || b.Language == "text" || strings.ContainsAny(b.Text, "┌└├│►█")
		}
	}
	for file, has := range guides {
		if !has {
			t.Errorf("%s has no picture", file)
		}
	}
	if len(guides) < 20 {
		t.Errorf("%d guides", len(guides))
	}
}

func TestTheMapListsEveryPage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	index := all[slices.IndexFunc(all, func(p Block) bool { return p.File == "docs/README.md" })].Text
	for _, p := range all {
		name, found := strings.CutPrefix(p.File, "docs/")
		folder, _, _ := strings.Cut(name, "/")
		listed := !found || !slices.Contains([]string{"start", "guide", "reference"}, folder)
		if !listed && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not list %s", p.File)
		}
	}
}

// TestTheReadmeIsShort: who opens the repository reads one page of it.
func TestTheReadmeIsShort(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if words := len(strings.Fields(p.Text)); p.File == "README.md" && (words > 700 || words < 200) {
			t.Errorf("%d words, want at most 700", words)
		}
	}
}
