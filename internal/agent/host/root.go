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

// Sys returns a path below Dir/sys.
func (r Root) Sys(elem ...string) string { return r.Path(append([]string{"sys"}, elem...)...) }

// Proc returns a path below Dir/proc.
func (r Root) Proc(elem ...string) string { return r.Path(append([]string{"proc"}, elem...)...) }

// Cgroup returns a path below Dir/sys/fs/cgroup.
func (r Root) Cgroup(elem ...string) string {
	return r.Sys(append([]string{"fs", "cgroup"}, elem...)...)
}

// errNotRegular refuses a pipe or a device in place of a file: it might never end.
var errNotRegular = errors.New("is not a regular file")

// maxFileBytes bounds every file that is read: /proc/cpuinfo of 1,024 CPUs is 1.5 MB.
const maxFileBytes = 8 << 20

// tree reads files below a Root and below nothing else.
type tree struct {
	dir  string
	root *os.Root
	// folder is the folder of the file that was read last, its path below root, nil before the first one. Files of one
	// folder are read one after the other, and a path from the root costs a system call for each of its parts.
	folder *os.Root
	path   string
}

func open(r Root) (*tree, error) {
	root, err := os.OpenRoot(r.Path())
	if err != nil {
		return nil, fmt.Errorf("open machine root: %w", err)
	}
	return &tree{dir: r.Path(), root: root}, nil
}

func (t *tree) close() {
	if t.folder != nil {
		_ = t.folder.Close()
	}
	_ = t.root.Close()
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

// fault says which file an error is about.
func (t *tree) fault(name string, err error) error {
	return fmt.Errorf("%s: %w", filepath.Join(t.dir, name), err)
}

// text returns a file's content without surrounding white space and NULs, "" for a missing file. Some kernels end
// values in NUL.
func (t *tree) text(name string) (string, error) {
	f, err := t.open(name)
	if err != nil {
		if isMissing(err) {
			return "", nil
		}
		return "", t.fault(name, bare(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", t.fault(name, errors.Join(err, errNotRegular))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return "", t.fault(name, bare(err))
	}
	if len(b) > maxFileBytes {
		return "", t.fault(name, fmt.Errorf("is larger than %d bytes", maxFileBytes))
	}
	return trim(string(b)), nil
}

// has reports whether a file or folder exists.
func (t *tree) has(name string) bool {
	_, err := t.root.Stat(name)
	return err == nil
}

// number reads a file that holds one integer; ok is false when the file is missing or empty.
func (t *tree) number(name string) (n int64, ok bool, err error) {
	s, err := t.text(name)
	if err != nil || s == "" {
		return 0, false, err
	}
	n, err = parseNumber(s)
	if err != nil {
		return 0, false, t.fault(name, err)
	}
	return n, true, nil
}

// cpus reads the first file of names that exists and is not empty: a CPU list, or a CPU map when its name does not end
// in "list". nil when there is none.
func (t *tree) cpus(dir string, names ...string) ([]int, error) {
	for _, name := range names {
		file := path.Join(dir, name)
		s, err := t.text(file)
		if err != nil {
			return nil, err
		}
		if s == "" {
			continue
		}
		parse := parseMap
		if strings.HasSuffix(name, "list") {
			parse = parseList
		}
		ids, err := parse(s)
		if err != nil {
			return nil, t.fault(file, err)
		}
		if len(ids) > 0 {
			return ids, nil
		}
	}
	return nil, nil
}

// numbered lists the entries of a folder that are a prefix and a number, in ascending order; none for a missing folder.
func (t *tree) numbered(dir, prefix string) ([]int, error) {
	f, err := t.root.Open(dir)
	if err != nil {
		if isMissing(err) {
			return nil, nil
		}
		return nil, t.fault(dir, bare(err))
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, t.fault(dir, bare(err))
	}
	return numbersAfter(prefix, names), nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// bare drops the path that os errors carry: fault adds the whole one.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
