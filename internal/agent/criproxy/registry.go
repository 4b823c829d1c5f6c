package criproxy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// registry knows the hook servers that the files of a folder register. It looks at the folder at every question, so
// that a change counts from the next call on; a file is read only when it changed. It is safe for concurrent use.
type registry struct {
	dir string
	log klog.Logger

	mu      sync.Mutex // guards the fields below
	files   map[string]*registered
	listing error // why the folder could not be listed last time; logged once
}

// registered is a file of the folder.
type registered struct {
	// identity is that of the content that was read last.
	identity identity
	// last is the registration in the last content that could be read; nil if none could.
	last *Registration
}

type identity struct {
	dev, inode           uint64
	size                 int64
	modified, changeTime unix.Timespec
}

// server is a hook server that is registered for a hook.
type server struct {
	file string
	*Registration
}

// servers returns those that are registered for a hook, in the order of their files' names. A file that can no longer
// be read keeps its last meaning as long as it is there.
func (r *registry) servers(h Hook) []server {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
	var found []server
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if last := r.files[name].last; last != nil && slices.Contains(last.Hooks, h) {
			found = append(found, server{name, last})
		}
	}
	return found
}

// announce reads the folder for the first time, so that its errors are logged at the start.
func (r *registry) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
}

// refresh looks at the folder. The caller holds mu.
func (r *registry) refresh() {
	names, err := registrations(r.dir)
	if err != nil {
		if r.listing == nil {
			r.log.Error(err, "Failed to list hook servers, keeping the known ones")
		}
		r.listing = err
		return
	}
	r.listing = nil
	for name := range r.files {
		if !slices.Contains(names, name) {
			delete(r.files, name)
			r.log.Info("Hook server is no longer registered", "file", filepath.Join(r.dir, name))
		}
	}
	for _, name := range names {
		r.look(name)
	}
}

// look reads a file that changed. The caller holds mu.
func (r *registry) look(name string) {
	path := filepath.Join(r.dir, name)
	now := identify(path)
	f := r.files[name]
	if f != nil && f.identity == now {
		return
	}
	if f == nil {
		f = &registered{}
		r.files[name] = f
	}
	f.identity = now
	read, err := readRegistration(path)
	if err != nil {
		r.log.Error(err, "Hook server's registration cannot be used", "file", path, "lastGoodIsUsed", f.last != nil)
		return
	}
	f.last = read
	r.log.Info("Hook server is registered", "file", path, "endpoint", read.Endpoint, "policy", read.Policy, "hooks",
		read.Hooks)
}

// readRegistration reads a file of the hooks folder. The error names the file and every field that is wrong.
func readRegistration(path string) (*Registration, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	r, err := ParseRegistration(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// maxRegistration is many times what a registration needs, in bytes.
const maxRegistration = 1 << 20

// readFile reads a file that must be a regular one: all calls wait while a registration is read, and a pipe may never
// end.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxRegistration+1))
	if err == nil && len(content) > maxRegistration {
		err = fmt.Errorf("%s: is larger than %d bytes", path, maxRegistration)
	}
	return content, err
}

// registrations lists the registration files of a hooks folder, sorted; none if the folder does not exist.
func registrations(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// identify returns an identity that changes with the content of a file. A file that cannot be read has no identity.
func identify(path string) identity {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return identity{}
	}
	return identity{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim}
}
