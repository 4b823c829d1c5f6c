package machine

import (
	"archive/tar"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of an unpacked capture: the largest known one has 16,000 entries and 10 MB.
const (
	maxEntries      = 200_000
	maxCaptureBytes = 1 << 30
	maxFileBytes    = 8 << 20
)

// parts are the files and folders that describe a machine. A capture holds much more: PCI devices, block devices, a
// link for every memory block.
var parts = []string{
	cpuDir, nodeDir, "sys/devices/cpu_core", "sys/devices/cpu_atom", "sys/kernel/mm/hugepages",
	"proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/cmdline", "proc/version",
}

// describes reports whether a path below the root is in parts and says something of CPUs or NUMA nodes: of the folder
// of a CPU that is its state, topology, speed and caches above the first level; of a NUMA node not its memory blocks.
func describes(name string) bool {
	if !slices.ContainsFunc(parts, func(part string) bool {
		return name == part ||
			strings.HasPrefix(name, part+"/")
	}) {
		return false
	}
	if rest, ok := strings.CutPrefix(name, nodeDir+"/"); ok {
		_, inside, _ := strings.Cut(rest, "/")
		base, _, _ := strings.Cut(inside, "/")
		return !isNumbered(base, "memory") && !strings.HasPrefix(base, "access")
	}
	rest, ok := strings.CutPrefix(name, cpuDir+"/")
	if !ok {
		return true
	}
	cpu, rest, inside := strings.Cut(rest, "/")
	if !inside {
		return true
	}
	if !isNumbered(cpu, "cpu") {
		return cpu == "cpufreq" && (!strings.Contains(rest, "/") || path.Base(rest) == "base_frequency")
	}
	folder, rest, inside := strings.Cut(rest, "/")
	if !inside {
		return slices.Contains([]string{"online", "cpu_capacity", "topology", "cache", "cpufreq"}, folder) ||
			isNumbered(folder, "node")
	}
	switch folder {
	case "topology":
		return true
	case "cpufreq":
		return rest == "base_frequency"
	case "cache":
		index, file, _ := strings.Cut(rest, "/")
		return index != "index0" && index != "index1" && slices.Contains(
			[]string{"", "id", "level", "type", "size", "shared_cpu_map", "shared_cpu_list"}, file)
	}
	return false
}

// isNumbered reports whether name is prefix and a number.
func isNumbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Unpack extracts a captured machine (tar, tar.gz, tar.bz2) into dir, which must exist: the folder that the archive
// wraps around sys and proc is taken off. Only what describes the machine is kept. Nothing is written outside of dir;
// an entry or a link that leads out of it is an error.
func Unpack(archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return unpack(archive, newStore(root))
}

func unpack(archive string, into *store) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	switch {
	case strings.HasSuffix(archive, ".bz2"):
		r = bzip2.NewReader(f)
	case strings.HasSuffix(archive, ".gz"), strings.HasSuffix(archive, ".tgz"):
		if r, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	if err := extract(tar.NewReader(io.LimitReader(r, maxCaptureBytes)), into); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if _, err := into.root.Stat(cpuDir); err != nil {
		return fmt.Errorf("%s: holds no %s: not a captured machine", archive, cpuDir)
	}
	return nil
}

// extract writes the entries of one archive.
func extract(t *tar.Reader, into *store) error {
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == maxEntries {
			return fmt.Errorf("has more than %d entries", maxEntries)
		}
		name, ok := strip(h.Name)
		if !ok {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("entry %q leads out of the archive", h.Name)
		}
		if !describes(name) {
			continue
		}
		if err := put(h, name, t, into); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

// strip takes off what stands before sys, proc, dev or run: "./capture/sys/…" is "sys/…". Other entries are left out.
func strip(name string) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for i, p := range parts[:min(3, len(parts))] {
		switch p {
		case "sys", "proc", "dev", "run":
			return strings.TrimSuffix(strings.Join(parts[i:], "/"), "/"), true
		}
	}
	return "", false
}

func put(h *tar.Header, name string, content io.Reader, into *store) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return into.folder(name)
	case tar.TypeReg:
		text, err := io.ReadAll(io.LimitReader(content, maxFileBytes+1))
		if err != nil {
			return err
		}
		if len(text) > maxFileBytes {
			return fmt.Errorf("is larger than %d bytes", maxFileBytes)
		}
		return into.file(name, string(text))
	case tar.TypeSymlink:
		// A link may dangle, as captures are partial, but must not lead out: readers follow it below dir only, other
		// programs would not care.
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) {
			return fmt.Errorf("link to %q leads out of the archive", h.Linkname)
		}
		return into.link(name, h.Linkname)
	}
	return nil
}

// unpackCapture brings a captured machine, archive or folder, into a store.
func unpackCapture(capture string, into *store) error {
	info, err := os.Stat(capture)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unpack(capture, into)
	}
	if _, err := os.Stat(filepath.Join(capture, cpuDir)); err != nil {
		return fmt.Errorf("%s: holds no %s: not a captured machine", capture, cpuDir)
	}
	return copyTree(capture, into)
}

// copyTree copies the parts of a folder that describe the machine: of a live "/" copying all of sys would never end.
func copyTree(from string, into *store) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	for _, part := range parts {
		if err := copyPart(src, into, part); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return nil
}

func copyPart(src *os.Root, into *store, part string) error {
	if _, err := src.Stat(part); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fs.WalkDir(src.FS(), part, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case !describes(name) && e.IsDir():
			return fs.SkipDir
		case !describes(name):
			return nil
		case e.IsDir():
			return into.folder(name)
		case e.Type()&fs.ModeSymlink != 0:
			target, err := src.Readlink(name)
			if err != nil || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
				return err // links out of the tree are of no use to a simulated machine
			}
			return into.link(name, target)
		case !e.Type().IsRegular():
			return nil
		}
		// A live sysfs has files that cannot be read, such as those of an offline CPU.
		if content, err := src.ReadFile(name); err == nil {
			return into.file(name, string(content))
		}
		return nil
	})
}
