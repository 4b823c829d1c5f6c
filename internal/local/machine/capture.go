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
	"regexp"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// Bounds of an unpacked capture: the largest known one has 16,000 entries and 10 MB.
const (
	maxEntries      = 200_000
	maxCaptureBytes = 1 << 30
	maxFileBytes    = 8 << 20
)

// parts are the files and folders that describe a machine. A capture holds much more: block devices, a link for every
// memory block.
var parts = []string{
	cpuDir, nodeDir, "sys/devices/cpu_core", "sys/devices/cpu_atom", "sys/kernel/mm/hugepages",
	"proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/cmdline", "proc/version",
	"proc/devices", "proc/driver/nvidia/gpus", "sys/class", "sys/bus/pci/devices", "sys/bus/platform/devices",
	"sys/devices/pci*", "sys/devices/virtual/misc", "sys/devices/virtual/kfd", host.DropDirs()[0],
}

// described matches the paths in parts that say something of CPUs or NUMA nodes: of the folder of a CPU that is its
// state, topology, speed and caches. Of these, omitted are first level caches, and memory blocks of NUMA nodes.
var (
	described = regexp.MustCompile(`^(sys/devices/(system/node|cpu_core|cpu_atom)(/.*)?|` +
		`sys/kernel/mm/hugepages(/.*)?|proc/(cpuinfo|meminfo|stat|cmdline|version)|` +
		`sys/devices/system/cpu(/[^/]+|/cpufreq/[^/]+|/cpufreq/.*/base_frequency|` +
		`/cpu\d+/(online|cpu_capacity|node\d+|cpufreq(/base_frequency)?|topology(/.*)?|` +
		`cache(/[^/]+(/(id|level|type|size|shared_cpu_map|shared_cpu_list))?)?))?)$`)
	omitted = regexp.MustCompile(
		`^sys/devices/system/(cpu/cpu\d+/cache/index[01]|node/[^/]+/(memory\d+|access[^/]*))(/|$)`)
)

// cards matches what the agent reads of devices: what drivers say of them, the links by which sysfs lists them, and
// facts in their folders, which are anywhere below the root complexes.
var cards = regexp.MustCompile(`^(proc/(devices|driver/nvidia/gpus/[^/]+/information)|` +
	`var/run/tenon/device-infos/[^/]+\.json|sys/bus/(pci|platform)/devices/[^/]+|` +
	`sys/class/(drm|infiniband|infiniband_verbs|infiniband_mad|fpga_manager|misc|kfd)/[^/]+|` +
	`sys/(class|devices/pci[^/]+|devices/virtual/(misc|kfd))/.+/(vendor|numa_node|physfn|unique_id|product_name|` +
	`mem_info_vram_total|uevent|state|phys_state|properties))$`)

func describes(name string) bool {
	return described.MatchString(name) && !omitted.MatchString(name) || cards.MatchString(name)
}

// Unpack brings a captured machine, an archive (tar, tar.gz, tar.bz2) or a folder, into dir, which must exist: the
// folder that an archive wraps around sys and proc is taken off. Only what describes the machine is kept. Nothing is
// written outside of dir; an entry or a link of an archive that leads out of it is an error.
func Unpack(capture, dir string) error {
	info, err := os.Stat(capture)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	bring := unpack
	if info.IsDir() {
		bring = copyTree
	}
	if err := bring(capture, newStore(root)); err != nil {
		return fmt.Errorf("%s: %w", capture, err)
	}
	if _, err := root.Stat(cpuDir); err != nil {
		return fmt.Errorf("%s: holds no %s: not a captured machine", capture, cpuDir)
	}
	return nil
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
			return err
		}
	}
	return extract(tar.NewReader(io.LimitReader(r, maxCaptureBytes)), into)
}

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

// strip takes off what stands before sys, proc, dev, run or var: "./capture/sys/…" is "sys/…". Other entries are left
// out.
func strip(name string) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for i, p := range parts[:min(3, len(parts))] {
		switch p {
		case "sys", "proc", "dev", "run", "var":
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
		if leadsOut(name, h.Linkname) {
			return fmt.Errorf("link to %q leads out of the archive", h.Linkname)
		}
		return into.link(name, h.Linkname)
	case tar.TypeLink: // sysfs has none, the tree of a simulated machine does
		return errors.New("is a hard link: pack the files themselves (tar --hard-dereference)")
	}
	return nil
}

func leadsOut(link, target string) bool {
	return path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(link), target))
}

// copyTree copies the parts of a folder that describe the machine: of a live "/" copying all of sys would never end.
func copyTree(from string, into *store) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	visit := func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !describes(name) && strings.HasPrefix(name, "sys/devices/system/") && e.IsDir():
			return fs.SkipDir
		case !describes(name):
			return nil
		case e.IsDir():
			return into.folder(name)
		case e.Type()&fs.ModeSymlink != 0:
			target, err := src.Readlink(name)
			if err != nil || leadsOut(name, target) {
				return err // links out of the tree are useless to a simulated machine
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
	}
	for _, part := range parts {
		found, err := fs.Glob(src.FS(), part)
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := fs.WalkDir(src.FS(), name, visit); err != nil {
				return err
			}
		}
	}
	return nil
}
