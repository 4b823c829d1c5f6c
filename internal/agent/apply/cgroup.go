package apply

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
)

// Cgroup is the cgroup tree of one machine. Groups are named by their path relative to its root, files by the name that
// the tree's dialect uses. A missing group or file is an error for which errors.Is(err, fs.ErrNotExist) holds; refusals
// of the kernel are the errno that it gave.
type Cgroup interface {
	Dialect() desired.Dialect
	// Read returns the content of a file without the final newline.
	Read(group, file string) (string, error)
	// Write hands value to the kernel in one write.
	Write(group, file, value string) error
	// Children returns the names of the groups directly below group, in any order.
	Children(group string) ([]string, error)
}

// Names of the files that are only read.
const (
	effectiveV2 = "cpuset.cpus.effective"
	effectiveV1 = "cpuset.effective_cpus"
	eventsV2    = "cgroup.events"
	procsFile   = "cgroup.procs"
)

func effectiveFile(d desired.Dialect) string {
	if d == desired.V1 {
		return effectiveV1
	}
	return effectiveV2
}

// Tree is the Cgroup of a mounted cgroup filesystem. Package os repeats calls that a signal interrupted.
type Tree struct {
	dir     string
	dialect desired.Dialect
}

var _ Cgroup = (*Tree)(nil)

// Mounted returns the tree that is mounted below dir, such as /sys/fs/cgroup.
func Mounted(dir string, d desired.Dialect) *Tree { return &Tree{dir: dir, dialect: d} }

// Dialect returns the tree's dialect.
func (t *Tree) Dialect() desired.Dialect { return t.dialect }

// Read returns the content of a file.
func (t *Tree) Read(group, file string) (string, error) {
	b, err := os.ReadFile(t.path(group, file))
	return strings.TrimRight(string(b), "\n"), err
}

// Write does one write(2): a value that is split or buffered is another value to the kernel. An empty value is sent as
// a newline, since an empty write may never reach it.
func (t *Tree) Write(group, file, value string) (err error) {
	f, err := os.OpenFile(t.path(group, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if value == "" {
		value = "\n"
	}
	_, err = f.WriteString(value)
	return err
}

// Children lists the groups below group.
func (t *Tree) Children(group string) ([]string, error) {
	entries, err := os.ReadDir(t.path(group, "cpuset."))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// path returns the place of a file. In v1 each controller has a hierarchy of its own, named by the first part of the
// file's name; the files of the core are read where the cpusets are. A name that ends in a dot stands for the group.
func (t *Tree) path(group, file string) string {
	controller, rest, _ := strings.Cut(file, ".")
	if rest == "" {
		file = ""
	}
	if t.dialect == desired.V2 {
		return filepath.Join(t.dir, group, file)
	}
	if controller == "cgroup" {
		controller = "cpuset"
	}
	return filepath.Join(t.dir, controller, group, file)
}

// SliceGroup returns the group of a slice or of a cgroupfs path, relative to the root of the tree. The name of a slice
// is expanded: a dash in it stands for "inside of".
//
//	kubepods-burstable-pod12.slice ─► kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12.slice
func SliceGroup(cgroup string) string {
	cgroup = strings.Trim(path.Clean("/"+cgroup), "/")
	name, isSlice := strings.CutSuffix(cgroup, ".slice")
	switch {
	case cgroup == "" || strings.Contains(cgroup, "/") || !isSlice:
		return cgroup
	case name == "-":
		return "" // the root slice
	}
	var at string
	words := strings.Split(name, "-")
	for i := range words {
		at = path.Join(at, strings.Join(words[:i+1], "-")+".slice")
	}
	return at
}
