package kubeletfile

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
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

// Process is a process of a machine.
type Process struct {
	PID  int
	Args []string // never empty
	// Nested reports that the process runs in a PID namespace below the machine's, as the runtime and the kubelet of a
	// node in a container do. The agent's pod shares the machine's namespace.
	Nested bool
}

// Processes returns the processes of the machine below root by PID, without threads of the kernel.
func Processes(root string) []Process {
	var list []Process
	for _, name := range Names(root, "proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := Read(root, path.Join("proc", name, "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if args[0] != "" {
			list = append(list, Process{pid, args, isNested(root, name)})
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list
}

// isNested reports whether a process has a number in more than one PID namespace.
func isNested(root, pid string) bool {
	status, err := Read(root, path.Join("proc", pid, "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(numbers)) > 1
		}
	}
	return false
}

// Name returns the file name of the program.
func (p Process) Name() string { return path.Base(p.Args[0]) }

// Flag returns the value of a flag, given as --name VALUE or --name=VALUE or with one dash, and whether it is given at
// all. If the flag is given several times, the last value counts, as for the programs themselves.
func (p Process) Flag(names ...string) (value string, given bool) {
	for i, arg := range p.Args {
		key, text, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || !slices.Contains(names, key) {
			continue
		}
		if !joined && i+1 < len(p.Args) {
			text = p.Args[i+1]
		}
		value, given = text, true
	}
	return value, given
}
