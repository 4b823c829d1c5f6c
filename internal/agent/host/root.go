package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Root is the directory that stands in for "/".
type Root struct {
	// Dir is "/" on a real machine.
	Dir string
}

// Path returns the host's path of a file below the Root: Path("sys", "fs") is Dir/sys/fs.
func (r Root) Path(elem ...string) string {
	return filepath.Join(append([]string{r.Dir}, elem...)...)
}

// Cgroup returns a path below Dir/sys/fs/cgroup.
func (r Root) Cgroup(elem ...string) string { return r.Path("sys/fs/cgroup", filepath.Join(elem...)) }

// errNotRegular refuses a pipe or a device in place of a file: it might never end.
var errNotRegular = errors.New("is not a regular file")

// maxFileBytes bounds every file that is read: /proc/cpuinfo of 1,024 CPUs is 1.5 MB.
const maxFileBytes = 8 << 20

// tree reads files below a Root and below nothing else. It keeps its first error; files that are read after that are
// missing.
type tree struct {
	dir  string
	root *os.Root
	err  error
	// folder is the folder of the file that was read last, its path below root, nil before the first one. Files of one
	// folder are read one after the other, and a path from the root costs a system call for each of its parts.
	folder *os.Root
	path   string
}

// within lets f read below a Root, and returns the first error of a file.
func within(r Root, f func(*tree)) error {
	root, err := os.OpenRoot(r.Path())
	if err != nil {
		return fmt.Errorf("open machine root: %w", err)
	}
	t := &tree{dir: r.Path(), root: root}
	f(t)
	if t.folder != nil {
		_ = t.folder.Close()
	}
	_ = t.root.Close()
	return t.err
}

// open opens a file through its folder. A symbolic link in place of the file may lead out of the folder, though not out
// of the tree: then the path from the root counts.
func (t *tree) open(name string) (*os.File, error) {
	dir, file := path.Split(name)
	if t.folder == nil || t.path != dir {
		if dir == "" {
			return openFile(t.root, name)
		}
		folder, err := t.root.OpenRoot(dir)
		if err != nil {
			return openFile(t.root, name) // its error names the part that is missing
		}
		if t.folder != nil {
			_ = t.folder.Close()
		}
		t.folder, t.path = folder, dir
	}
	f, err := openFile(t.folder, file)
	if err != nil && !isMissing(err) {
		return openFile(t.root, name)
	}
	return f, err
}

// openFile opens a file without waiting for the writer of a pipe.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// fail keeps the first error, with the file that it is about. It has no effect for nil.
func (t *tree) fail(name string, err error) {
	if err == nil || t.err != nil {
		return
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // without its path: the whole one is added
	}
	t.err = fmt.Errorf("%s: %w", filepath.Join(t.dir, name), err)
}

// text returns a file's content without surrounding white space and NULs, "" for a missing file. Some kernels end
// values in NUL.
func (t *tree) text(name string) string {
	if t.err != nil {
		return ""
	}
	f, err := t.open(name)
	if isMissing(err) {
		return ""
	}
	if err != nil {
		t.fail(name, err)
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		t.fail(name, errors.Join(err, errNotRegular))
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("is larger than %d bytes", maxFileBytes)
	}
	if err != nil {
		t.fail(name, err)
		return ""
	}
	return trim(string(b))
}

// has reports whether a file or folder exists.
func (t *tree) has(name string) bool {
	_, err := t.root.Stat(name)
	return err == nil
}

// number reads a file that holds one integer; ok is false when the file is missing or empty.
func (t *tree) number(name string) (n int64, ok bool) {
	s := t.text(name)
	if s == "" {
		return 0, false
	}
	n, err := parseNumber(s)
	t.fail(name, err)
	return n, err == nil
}

// list reads a file in list format; nil when missing or empty.
func (t *tree) list(name string) []int { return t.ids(name, cpuset.ParseIDs) }

func (t *tree) ids(name string, parse func(string) ([]int, error)) []int {
	s := t.text(name)
	if s == "" {
		return nil
	}
	ids, err := parse(s)
	t.fail(name, err)
	return ids
}

// cpus reads the first file of names that exists and is not empty: a CPU list, or a CPU map when its name does not end
// in "list". nil when there is none.
func (t *tree) cpus(dir string, names ...string) []int {
	for _, name := range names {
		parse := ParseMap
		if strings.HasSuffix(name, "list") {
			parse = cpuset.ParseIDs
		}
		if ids := t.ids(path.Join(dir, name), parse); len(ids) > 0 {
			return ids
		}
	}
	return nil
}

// numbered lists the entries of a folder that are a prefix and a number, in ascending order; none for a missing folder.
func (t *tree) numbered(dir, prefix string) []int { return numbersAfter(prefix, t.names(dir)) }

// names lists the entries of a folder in any order; none for a missing folder.
func (t *tree) names(dir string) []string {
	if t.err != nil {
		return nil
	}
	f, err := t.root.Open(dir)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		t.fail(dir, err)
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	t.fail(dir, err)
	return names
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
