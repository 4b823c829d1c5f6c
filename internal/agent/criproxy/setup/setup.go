package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

const (
	// dropInName sorts after the names of most other drop-ins: the kubelet lets the last one win.
	dropInName = "90-tenon-runtime-proxy.conf"
	// registrationName is that of the agent's registration.
	registrationName = "tenon-agent.json"
	// mark is the first line of a drop-in that Install wrote.
	mark = "# Written by `tenon-runtime-proxy install`; `tenon-runtime-proxy uninstall` removes it."
)

// Setup says where a node keeps what Install and Uninstall change.
type Setup struct {
	// Root stands in for the node's /.
	Root string
	// KubeletDir is the folder that the kubelet was given as --config-dir.
	KubeletDir string
	// HooksDir has the registrations of hook servers.
	HooksDir string
	// Listen is the proxy's socket, AgentSocket the agent's: absolute paths.
	Listen, AgentSocket string
}

// Install writes the drop-in and the registration where they are missing, and returns a line for each thing that it did
// and that is left to do. Doing it again changes nothing. A registration that is there already is kept. The error names
// the file.
func (s Setup) Install(ctx context.Context) ([]string, error) {
	listen, err := socket.Path(s.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	registration, err := s.registration()
	if err != nil {
		return nil, err
	}
	if err := s.mayWrite(s.dropIn()); err != nil {
		return nil, err
	}
	// The agent first: a proxy that knows no hook server holds pods back.
	kept, err := s.write(s.HooksDir, registrationName, registration, func(before []byte) bool { return before == nil })
	if err != nil {
		return nil, err
	}
	content := fmt.Appendf(nil,
		"%s\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: "+
			"unix://%s\n", mark, listen)
	put, err := s.write(s.KubeletDir, dropInName, content,
		func(before []byte) bool { return !bytes.Equal(before, content) })
	if err != nil {
		return nil, err
	}
	did := append([]string{kept, put}, s.obstacles()...)
	if socket.Probe(ctx, filepath.Join(s.Root, listen)) != nil {
		did = append(did, "to do: start tenon-runtime-proxy first: no process listens on "+listen)
	}
	return append(did, "to do: restart the kubelet; running containers are not touched"), nil
}

// Uninstall removes what Install wrote, and returns a line for each thing that it did and that is left to do. Doing it
// again changes nothing. What others wrote or changed is kept.
func (s Setup) Uninstall(context.Context) ([]string, error) {
	if err := s.mayWrite(s.dropIn()); err != nil {
		return nil, err
	}
	dropIn, err := s.remove(s.dropIn(), func([]byte) bool { return true })
	if err != nil {
		return nil, err
	}
	registration, err := s.registration()
	if err != nil {
		return nil, err
	}
	registered, err := s.remove(filepath.Join(s.HooksDir, registrationName),
		func(content []byte) bool { return bytes.Equal(content, registration) })
	if err != nil {
		return nil, err
	}
	return []string{dropIn, registered, "to do: restart the kubelet, and stop tenon-runtime-proxy after that"}, nil
}

func (s Setup) dropIn() string { return filepath.Join(s.KubeletDir, dropInName) }

// registration is that of the agent. Plain pods pass while it is away; those that must be enforced never do.
func (s Setup) registration() ([]byte, error) {
	path, err := socket.Path(s.AgentSocket)
	if err != nil {
		return nil, fmt.Errorf("agent-socket: %w", err)
	}
	content, err := json.MarshalIndent(criproxy.Registration{
		Endpoint: path, Policy: criproxy.Ignore,
		Hooks: []criproxy.Hook{
			criproxy.PreRunPodSandbox, criproxy.PreCreateContainer, criproxy.PreStartContainer,
			criproxy.PostStartContainer, criproxy.PreUpdateContainerResources, criproxy.PostStopContainer,
			criproxy.PostStopPodSandbox,
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}

// mayWrite refuses a drop-in of another writer.
func (s Setup) mayWrite(path string) error {
	content, err := os.ReadFile(filepath.Join(s.Root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(content, []byte(mark+"\n")) {
		return fmt.Errorf("%s was not written by tenon-runtime-proxy: its first line is not %q; move it away", path,
			mark)
	}
	return nil
}

// write replaces a file in one step where its content asks for it.
func (s Setup) write(dir, name string, content []byte, wanted func(before []byte) bool) (string, error) {
	path := filepath.Join(dir, name)
	before, err := os.ReadFile(filepath.Join(s.Root, path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if !wanted(before) {
		return "unchanged: " + path, nil
	}
	folder := filepath.Join(s.Root, dir)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	// The name does not end like those that are read.
	f, err := os.CreateTemp(folder, "."+name+"-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Root, path))
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return "wrote: " + path, nil
}

// remove deletes a file whose content is ours.
func (s Setup) remove(path string, ours func([]byte) bool) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.Root, path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "not there: " + path, nil
	case err != nil:
		return "", err
	case !ours(content):
		return "kept, as it was changed: " + path, nil
	}
	return "removed: " + path, os.Remove(filepath.Join(s.Root, path))
}

// obstacles returns what keeps kubelets from using the drop-in, as things to do.
func (s Setup) obstacles() (todo []string) {
	add := func(format string, args ...any) { todo = append(todo, "to do: "+fmt.Sprintf(format, args...)) }
	for _, p := range kubeletfile.Processes(s.Root) {
		if p.Name() != "kubelet" {
			continue
		}
		if dir, _ := p.Flag("config-dir"); filepath.Clean(dir) != filepath.Clean(s.KubeletDir) || dir == "" {
			add("start the kubelet (pid %d) with --config-dir=%s: it has %q", p.PID, s.KubeletDir, dir)
		}
		if endpoint, given := p.Flag("container-runtime-endpoint"); given {
			add("start the kubelet (pid %d) without --container-runtime-endpoint=%s: it goes before the drop-in",
				p.PID, endpoint)
		}
	}
	for d := range kubeletfile.DropIns(s.Root, s.KubeletDir) {
		if filepath.Base(d.Path) <= dropInName {
			continue
		}
		if endpoint, _ := d.Fields["containerRuntimeEndpoint"].(string); endpoint != "" {
			add("take containerRuntimeEndpoint out of %s: it goes before the drop-in", d.Path)
		}
	}
	return todo
}
