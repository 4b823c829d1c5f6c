package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const stdin = "-"

type origin struct {
	file     string
	document int // from 1
	item     int // from 1 in a List, 0 outside
	object   string
	// stored reports whether an API server has taken the object: it is of a cluster, or has a uid. Nothing validates it
	// as if it were created.
	stored bool
}

// String is the beginning of every message about the object.
func (o origin) String() string {
	text := fmt.Sprintf("%s: document %d", o.file, o.document)
	if o.item > 0 {
		text += fmt.Sprintf(", item %d", o.item)
	}
	if o.object != "" {
		text += " (" + o.object + ")"
	}
	return text
}

type document struct {
	origin
	text []byte
}

const maxProblems = 50

// InputError is bad input: each problem names file, document and field.
type InputError struct{ Problems []string }

// Error returns one problem a line.
func (e *InputError) Error() string {
	lines := e.Problems
	if hidden := len(lines) - maxProblems; hidden > 0 {
		lines = append(slices.Clone(lines[:maxProblems]), fmt.Sprintf("… and %d more problems", hidden))
	}
	return strings.Join(lines, "\n")
}

// ExitCode returns the exit code of bad input.
func (*InputError) ExitCode() int { return 2 }

func inputErrorf(format string, args ...any) *InputError {
	return &InputError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// problems are those of the input. Invariant: list has no text about a stored object; unread has these, by object.
type problems struct {
	list   []string
	unread map[origin][]string
}

func (p *problems) add(o origin, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !o.stored {
		if line := o.String() + ": " + text; !slices.Contains(p.list, line) { // parts of an object have one template
			p.list = append(p.list, line)
		}
		return
	}
	if p.unread == nil {
		p.unread = map[origin][]string{}
	}
	p.unread[o] = append(p.unread[o], text)
}

// warnUnread writes one warning for each stored object that cannot be read whole. It returns KIND NAMESPACE/NAME of
// these objects.
func (p *problems) warnUnread(warn io.Writer) sets.Set[string] {
	var lines []string
	objects := sets.New[string]()
	for at, texts := range p.unread {
		kind, name, _ := strings.Cut(at.object, " ")
		if !strings.Contains(name, "/") {
			name = metav1.NamespaceDefault + "/" + name
		}
		objects.Insert(kind + " " + name)
		lines = append(lines,
			fmt.Sprintf("warning: %s: %s: what cannot be read is left out", at, strings.Join(texts, "; ")))
	}
	slices.Sort(lines)
	for _, line := range lines {
		warnf(warn, "%s", line)
	}
	return objects
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &InputError{Problems: p.list}
}

// readDocuments reads files, all manifests below folders in the order of their paths, and standard input for "-". It
// writes a warning for each file below a folder whose name is not that of a manifest.
func readDocuments(paths []string, in io.Reader, warn io.Writer) (docs []document, err error) {
	var files []string
	for _, path := range paths {
		found, ignored, err := manifests(path)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
		for _, file := range ignored {
			warnf(warn, "ignored: %s: not a .yaml, .yml or .json file", file)
		}
	}
	for i, file := range files {
		if slices.Contains(files[:i], file) {
			return nil, inputErrorf("%s: given twice", file)
		}
		more, err := readFile(file, in)
		if err != nil {
			return nil, err
		}
		docs = append(docs, more...)
	}
	if len(docs) == 0 {
		return nil, inputErrorf("%s: no Kubernetes object", strings.Join(paths, ", "))
	}
	return docs, nil
}

func manifests(path string) (files, ignored []string, err error) {
	if path == stdin {
		return []string{stdin}, nil, nil
	}
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, inputErrorf("%s: no such file or folder", path)
	}
	if err != nil {
		return nil, nil, inputErrorf("%s: %v", path, err)
	}
	if !stat.IsDir() {
		return []string{path}, nil, nil
	}
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			files = append(files, name)
		} else {
			ignored = append(ignored, name)
		}
		return nil
	})
	if err != nil {
		return nil, nil, inputErrorf("%s: %v", path, err)
	}
	if len(files) == 0 {
		return nil, nil, inputErrorf("%s: no .yaml, .yml or .json file in this folder", path)
	}
	return files, ignored, nil
}

// readFile splits a file at its "---" lines. A document that contains only comments counts in the numbers of documents.
func readFile(file string, in io.Reader) (docs []document, err error) {
	name, read := file, func() ([]byte, error) { return os.ReadFile(file) }
	if file == stdin {
		name, read = "standard input", func() ([]byte, error) { return io.ReadAll(in) }
	}
	text, err := read()
	if err != nil {
		return nil, inputErrorf("%s: %v", file, err)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, inputErrorf("%s: document %d: %v", name, n, err)
		}
		if !isBlank(part) {
			docs = append(docs, document{origin{file: name, document: n}, part})
		}
	}
}

func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}
