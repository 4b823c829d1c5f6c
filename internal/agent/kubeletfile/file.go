package kubeletfile

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const maxFile = 4 << 20

// Read returns a file below root. A link that leads out of root is an error: the file would be of another machine.
func Read(root, name string) ([]byte, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it was only read
	f, err := r.Open(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return text, err
}

// Names lists a folder below root, sorted; none if the folder does not exist.
func Names(root, dir string) []string {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// DropIn is a file that a kubelet merges over its configuration file.
type DropIn struct {
	Path   string         // on the machine
	Fields map[string]any // by their names in KubeletConfiguration
	Err    error          // why the file cannot be read; a kubelet does not start with it either
}

// DropIns returns the drop-ins of a folder, the kubelet's --config-dir, in the order in which the kubelet merges them:
// the last one that has a field wins.
func DropIns(root, folder string) iter.Seq[DropIn] {
	return func(yield func(DropIn) bool) {
		for _, name := range Names(root, folder) {
			if path.Ext(name) != ".conf" {
				continue
			}
			d := DropIn{Path: path.Join("/", folder, name)}
			var text []byte
			if text, d.Err = Read(root, d.Path); d.Err == nil {
				d.Err = yaml.Unmarshal(text, &d.Fields)
			}
			if !yield(d) {
				return
			}
		}
	}
}
