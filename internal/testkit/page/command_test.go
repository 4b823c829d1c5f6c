package page

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsAreSplitAsByAShell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want [][]string
	}{
		"comments": {"make up  # a cluster\n# nothing\nmake test\n", [][]string{{"make", "up"}, {"make", "test"}}},
		"prompts":  {"$ tenon top\nNODE\n$ tenon \\\n  quota\n", [][]string{{"tenon", "top"}, {"tenon", "quota"}}},
		"pipes and lists": {
			"a | b 'x | y' && c; d &\n", [][]string{{"a"}, {"b", "x | y"}, {"c"}, {"d"}},
		},
		"quotes":      {`a "b 'c' \"d\"" e\ f ''` + "\n", [][]string{{"a", `b 'c' "d"`, "e f", ""}}},
		"a parameter": {"a $NODE \"$DIR\"/b\n", [][]string{{"a", "$NODE", "$DIR/b"}}},
		"a substitution": {
			"D=$(mktemp -d) a \"x$(b c)\" y\n", [][]string{{"mktemp", "-d"}, {"b", "c"}, {"a", "x$", "y"}},
		},
		"assignments":  {"A=1 B='2 3' c D=4\nE=5\n", [][]string{{"c", "D=4"}}},
		"redirections": {"a > /b c >>d < e\n", [][]string{{"a", "c"}}},
		"a document": {
			"cat >x <<'END' | b\n{{ template \"base\" . }}\nEND\nc\n", [][]string{{"cat"}, {"b"}, {"c"}},
		},
		"an anchor in a word": {"a b#c\n", [][]string{{"a", "b#c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, Block{Text: c.text}.Commands()); diff != "" {
				t.Errorf("commands of %q (-want +got):\n%s", c.text, diff)
			}
		})
	}
}
