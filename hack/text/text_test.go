package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func texts(hits []hit) []string {
	out := []string{}
	for _, h := range hits {
		out = append(out, h.text)
	}
	return out
}

func TestWords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"plain text":            {"The agent reports a near-miss of 3 pods.", []string{"near"}},
		"a sentence's first":    {"Nobody was told.", []string{"Nobody", "told"}},
		"part of a longer word": {"nearest, standard, dealer, stays", []string{}},
		"a name":                {"func groupsTold(is_told bool)", []string{"Told", "told"}},
		"is no":                 {"x is no directory", []string{"is no directory"}},
		"is no longer":          {"x is no longer there", []string{}},
		"is not":                {"x is not a directory", []string{}},
		"two lines":             {"a\nit tells\n", []string{"tells"}},
		"an inverted clause":    {"a gang of which a part is of no use", []string{"of which a part", "of no use"}},
		"who for whom":          {"empty for who may not read; for who, c := range x", []string{"for who may"}},
		"an inverted negation": {"until it is high no more, or\nit runs no more", []string{
			"is high no more,", "runs no more",
		}},
		"a count":    {"it runs no more pods than that", []string{}},
		"a copy":     {"pods that are equal to one", []string{"that are equal to one"}},
		"a singular": {"create 1 more pods; 1 more pod", []string{"1 more pods"}},
		"a clause without a verb": {"predict, with no cluster; pods go on running", []string{
			"with no cluster", "go on running",
		}},
		"a choice":               {"use -f or --like, one of the two", []string{", one of the two"}},
		"a comment and a string": {"// judge\nx := \"somebody\"", []string{"judge", "somebody"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, texts(words("a.md", []byte(tt.text)))); diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, text string
		want       []string
	}{
		"plain":           {"a.md", "A pod with exclusive CPUs is pending; the agent is down.", []string{}},
		"own CPUs":        {"a.md", "a pod with CPUs of its own", []string{"CPUs of its own (write: exclusive CPUs)"}},
		"anew, not ANEW":  {"a.txt", "write it anew; ANEW=1", []string{"anew (write: again, recreate)"}},
		"allocation":      {"a.json", "the kubelet gives out GPUs", []string{"gives out (write: allocate)"}},
		"a program's end": {"a.md", "while the agent is away", []string{"agent is away (write: is down)"}},
		"waiting":         {"a.md", "for a pod that waits", []string{"pod that waits (write: pending pod)"}},
		"habit":           {"a.md", "they start as always", []string{"as always (write: as usual)"}},
		"kernel": {"a.md", "it shows what the kernel has", []string{
			"what the kernel has (write: the values in the kernel)",
		}},
		"continuation": {"a.md", "the pod goes on", []string{"goes on (write: continue)"}},
		"search":       {"a.md", "6 sets were looked at", []string{"were looked at (write: is checked)"}},
		"message":      {"a.md", "the text has both", []string{"the text has (write: the message names)"}},
		"repair":       {"a.md", "the agent puts them right", []string{"puts them right (write: correct)"}},
		"removal":      {"a.md", "this takes it off the node", []string{"takes it off the node (write: remove from)"}},
		"a string and a comment of Go": {"a.go", "package p\n\n// it goes on\nconst a = `one\nanew`\n", []string{
			"anew (write: again, recreate)",
		}},
		"a test":  {"a_test.go", "package p\n\nconst a = `anew`\n", []string{}},
		"a style": {"a.css", "anew", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, texts(badPatterns(tt.file, []byte(tt.text)))); diff != "" {
				t.Errorf("patterns (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	const code = `package p

type twin struct {
	deaf, isDeaf, inFlight bool
	stirring              int // not the word
}

func (h *twin) giveBack(of string) (is bool) {
	for by, value := range h.all { // of, by and is in a text are not names
		setDeaf, asideFrom := by, value
		x.flights = setDeaf // an assignment declares nothing
	}
	func(givenBack, back int) {}(1, 2)
	return
}
`
	want := []string{
		"twin", "deaf", "isDeaf", "giveBack", "of", "is", "by", "setDeaf", "asideFrom", "givenBack",
	}
	if diff := cmp.Diff(want, texts(names("a.go", []byte(code)))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if hits := names("a.md", []byte("deaf")); len(hits) > 0 {
		t.Errorf("a text that is not Go: %v", hits)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	const head = "package p\n\nfunc f() {\n\t"
	for name, tt := range map[string]struct {
		code string
		want []string
	}{
		"116 columns behind a tab":   {head + "// " + strings.Repeat("é", 113) + "\n}\n", []string{}},
		"117 columns behind a tab":   {head + "// " + strings.Repeat("é", 114) + "\n}\n", []string{"121 columns"}},
		"a marker":                   {"package p\n\n// +kubebuilder:" + strings.Repeat("x", 113), []string{}},
		"two statements on one line": {head + "g(func() { a(); b() })\n}\n", []string{}},
		"three of them":              {head + "g(func() { a(); b(); c() })\n}\n", []string{"3 statements on one line"}},
		"a for loop's header":        {head + "for i := 0; i < 3; i++ {\n}\n}\n", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, texts(lines("a.go", []byte(tt.code)))); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
	if hits := lines("a.md", []byte(strings.Repeat("x", 500))); len(hits) > 0 {
		t.Errorf("a text that is not Go: %v", hits)
	}
}

func TestOnlyWhatPeopleWriteIsChecked(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{
		"README.md": true, "internal/a/a.go": true, "LICENSE": false, "test/x/go.sum": false,
		"internal/a/testdata/x.txt": false,
	} {
		if got := written(file, []byte("text")); got != want {
			t.Errorf("written(%s) = %v, want %v", file, got, want)
		}
	}
	if written("a.go", []byte("// Code generated by x. DO NOT EDIT.\n")) || written("a.png", []byte("a\x00b")) {
		t.Error("generated and binary files are checked")
	}
}
