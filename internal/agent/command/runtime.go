package command

import (
	"errors"
	"fmt"
	"path"

	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

// runtimeFlags are about the container runtime.
type runtimeFlags struct {
	nriSocket, hookSocket, cgroupRoot string
	allowDegraded                     bool
}

func (f *runtimeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.nriSocket, "nri-socket", "/var/run/nri/nri.sock",
		"NRI socket of the container runtime; empty to not connect")
	fs.StringVar(&f.hookSocket, "hook-socket", "/run/tenon/hooks.sock",
		"socket on which tenon-runtime-proxy asks; empty to not listen")
	fs.StringVar(&f.cgroupRoot, "cgroup-root", "",
		"cgroup below which the kubelet keeps its pods, like its own cgroupRoot (default: what the kubelet says, "+
			"else /)")
	fs.BoolVar(&f.allowDegraded, "allow-degraded-enforcement", false,
		"let LSE pods start where containers may start without the agent: on old runtimes, or without fences")
}

// wire puts the flags into options, and refuses what cannot be meant.
func (f *runtimeFlags) wire(o *app.Options) error {
	for _, s := range []struct {
		flag, value string
		to          *string
	}{{"--nri-socket", f.nriSocket, &o.NRISocket}, {"--hook-socket", f.hookSocket, &o.HookSocket}} {
		if s.value == "" {
			continue
		}
		at, err := socket.Path(s.value)
		if err != nil {
			return fmt.Errorf("%s: %w", s.flag, err)
		}
		*s.to = at
	}
	if o.NRISocket != "" && o.NRISocket == o.HookSocket {
		return errors.New(
			"--nri-socket and --hook-socket are one file: the one is the runtime's, the other the agent's own")
	}
	if f.cgroupRoot != "" && (!path.IsAbs(f.cgroupRoot) || path.Clean(f.cgroupRoot) != f.cgroupRoot) {
		return fmt.Errorf("--cgroup-root %q: want an absolute path such as / or /pods, as the kubelet's cgroupRoot",
			f.cgroupRoot)
	}
	o.CgroupRoot, o.AllowDegraded = f.cgroupRoot, f.allowDegraded
	return nil
}
