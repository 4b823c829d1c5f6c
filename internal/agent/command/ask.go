package command

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

// defaultPodResources is the kubelet's socket of PodResources; it stands below --root.
const defaultPodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// askFlags say where the node's kubelet is asked.
type askFlags struct{ endpoint, socket string }

func (f *askFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.endpoint, "kubelet-endpoint", "",
		"https://HOST:PORT where the node's kubelet serves /configz (default: the Node's InternalIP and port)")
	fs.StringVar(&f.socket, "pod-resources-socket", defaultPodResources,
		"the kubelet's PodResources socket; the default is below --root; empty to not ask")
}

// check refuses what cannot be meant, before a cluster is needed, and resolves the socket.
func (f *askFlags) check(fs *pflag.FlagSet, root host.Root) (err error) {
	if f.socket, err = f.socketBelow(root, fs); err != nil || f.endpoint == "" {
		return err
	}
	if fs.Changed("kubelet") {
		return errors.New(
			"--kubelet-endpoint has no use beside --kubelet, which says what the kubelet would: want one of them")
	}
	if _, err := kubeletapi.ParseEndpoint(f.endpoint); err != nil {
		return fmt.Errorf("--kubelet-endpoint: %w", err)
	}
	return nil
}

// wire fills the options that ask the kubelet, after check, unless settings are given by --kubelet, or
// --disable-query-kubelet-config asks for nothing.
func (f *askFlags) wire(o *app.Options, fs *pflag.FlagSet, kubeconfig string) error {
	if !o.Switches.QueryKubelet {
		return nil
	}
	if f.socket != "" {
		o.AskResources = kubeletapi.Socket(f.socket)
	}
	o.WatchKubelet, o.RegisterPlugins = true, true
	if fs.Changed("kubelet") {
		return nil
	}
	api, err := restConfig(kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubeletapi.NewClient(kubeletapi.ClientOptions{
		Node: o.Node, Root: o.Root, API: api, Endpoint: f.endpoint,
	})
	if err == nil {
		o.AskKubelet = client
	}
	return err
}

// socketBelow returns the socket's path; "" for none.
func (f *askFlags) socketBelow(root host.Root, fs *pflag.FlagSet) (string, error) {
	path := f.socket
	switch {
	case path == "":
		return "", nil
	case !fs.Changed("pod-resources-socket"):
		path = root.Path(path)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("--pod-resources-socket %q: want an absolute path, or nothing to not ask", path)
	}
	path, err := filepath.Abs(path)
	if err == nil && len(path) > socket.MaxPath && fs.Changed("pod-resources-socket") {
		err = fmt.Errorf("--pod-resources-socket %q: a socket's path has at most %d bytes", path, socket.MaxPath)
	}
	return path, err
}
