//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerdOptions are what a containerd is started with. The zero value is one as Tenon recommends it.
type ContainerdOptions struct {
	// Release is "1.7" for that containerd; "" for the one that Tenon recommends.
	Release string
	// Runc is called in place of runc; "" for runc itself.
	Runc string
	// NoNRI disables NRI.
	NoNRI bool
	// NoValidator disables the default validator, which reads the annotation of required plugins.
	NoValidator bool
	// RequestTimeout is how long a plugin may take; default 2 s.
	RequestTimeout time.Duration
	// LogLevel is "info" when empty.
	LogLevel string
}

// Containerd is a container runtime with its own folder.
type Containerd struct {
	*Process
	s       *Stage
	options ContainerdOptions
}

// Containerd starts a containerd and waits until it serves pods and has the images. There is at most one on a stage.
func (s *Stage) Containerd(o ContainerdOptions) *Containerd {
	s.t.Helper()
	c := &Containerd{s: s, options: o}
	s.Write("etc/containerd.toml", s.containerdConfig(o))
	s.Write("etc/cni/10-stage.conflist", s.networkConfig())
	for _, dir := range []string{"cdi", "nri", "nri/plugins", "nri/conf.d", "cni"} {
		must(s.t, os.MkdirAll(s.Path(dir), 0o755))
	}
	c.Start()
	c.Import(Tools("images.tar"))
	return c
}

// Start starts containerd again after Stop or Kill and waits until it serves pods.
func (c *Containerd) Start() {
	c.s.t.Helper()
	must(c.s.t, c.Restarted())
	c.Ready()
}

// Restarted starts containerd again and does not wait for it.
func (c *Containerd) Restarted() error {
	bin := c.bin()
	p, err := c.s.run(Command{
		Name: "containerd", Path: filepath.Join(bin, "containerd"),
		Args: []string{"--config", c.s.Path("etc/containerd.toml")},
		// The shim is found through PATH.
		Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")},
	})
	c.Process = p
	return err
}

// DisableValidator starts containerd again without the default validator.
func (c *Containerd) DisableValidator() {
	c.s.t.Helper()
	c.options.NoValidator = true
	c.s.Write("etc/containerd.toml", c.s.containerdConfig(c.options))
	c.Stop(c.s.t)
	c.Start()
}

// bin is the folder of containerd's own programs.
func (c *Containerd) bin() string {
	if c.options.Release == "" {
		return Tools("bin")
	}
	return Tools("containerd-" + c.options.Release)
}

// Ready waits until containerd serves pods.
func (c *Containerd) Ready() {
	c.s.t.Helper()
	r := c.s.Runtime(c.s.Socket())
	Await(c.s.t, "containerd", func() error {
		if !c.Running() {
			c.s.t.Fatalf("containerd ended: %v\n%s", c.Err(), c.Log())
		}
		ctx, cancel := context.WithTimeout(c.s.t.Context(), time.Second)
		defer cancel()
		return r.ready(ctx)
	})
}

// Stacks lets containerd write to its log what each of its goroutines does, and waits for that: a call that never ends
// is found there. The logs of a failed test are kept where TENON_STAGE_LOGS says.
func (c *Containerd) Stacks() {
	c.s.t.Helper()
	const end = "END goroutine stack dump"
	before := strings.Count(c.Log(), end)
	_ = c.cmd.Process.Signal(syscall.SIGUSR1) // it may have ended
	for limit := time.Now().Add(stopLimit); c.Running() && strings.Count(c.Log(), end) == before &&
		time.Now().Before(limit); {
		time.Sleep(pause)
	}
}

// Socket is where containerd serves CRI.
func (s *Stage) Socket() string { return s.Path("containerd.sock") }

// NRISocket is where containerd serves NRI.
func (s *Stage) NRISocket() string { return s.Path("nri", "nri.sock") }

// Import takes in an archive of images.
func (c *Containerd) Import(archive string) {
	s := c.s
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(c.bin(), "ctr"), "--address", s.Socket(),
		"--namespace", "k8s.io", "images", "import", archive)
	if text, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("import %s: %v\n%s", archive, err, text)
	}
}

func (s *Stage) containerdConfig(o ContainerdOptions) string {
	runc, level, timeout := o.Runc, o.LogLevel, o.RequestTimeout
	if runc == "" {
		runc = Tool("runc")
	}
	if level == "" {
		level = "info"
	}
	if timeout == 0 {
		timeout = 2 * time.Second
	}
	text := containerdConfig
	if o.Release == "1.7" {
		text = containerd17Config
	}
	return strings.NewReplacer(
		"$W", s.dir, "$RUNC", runc, "$CNI", Tools("cni"), "$LEVEL", level, "$TIMEOUT", timeout.String(),
		"$NONRI", fmt.Sprint(o.NoNRI), "$VALIDATOR", fmt.Sprint(!o.NoValidator),
	).Replace(text)
}

// Without CAP_SYS_RESOURCE, which containers of a build machine lack, every sandbox would end at its oom_score_adj:
// hence restrict_oom_score_adj. The sandbox image would else be pulled.
const containerdConfig = `version = 3
root = '$W/root'
state = '$W/state'
temp = '$W/temp'
[debug]
  level = '$LEVEL'
[grpc]
  address = '$W/containerd.sock'
[ttrpc]
  address = '$W/containerd.ttrpc'
[plugins.'io.containerd.internal.v1.opt']
  path = '$W/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ['$W/cdi']
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '$RUNC'
  Root = '$W/state/runc'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['$CNI']
  conf_dir = '$W/etc/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = $NONRI
  socket_path = '$W/nri/nri.sock'
  plugin_path = '$W/nri/plugins'
  plugin_config_path = '$W/nri/conf.d'
  plugin_request_timeout = '$TIMEOUT'
[plugins.'io.containerd.nri.v1.nri'.default_validator]
  enable = $VALIDATOR
`

// containerd17Config is the same for containerd 1.7, which has one plugin for CRI and no validator.
const containerd17Config = `version = 2
root = '$W/root'
state = '$W/state'
temp = '$W/temp'
[debug]
  level = '$LEVEL'
[grpc]
  address = '$W/containerd.sock'
[ttrpc]
  address = '$W/containerd.ttrpc'
[plugins.'io.containerd.internal.v1.opt']
  path = '$W/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = 'localhost/pause:1'
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ['$W/cdi']
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
  BinaryName = '$RUNC'
  Root = '$W/state/runc'
  SystemdCgroup = false
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '$CNI'
  conf_dir = '$W/etc/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = $NONRI
  socket_path = '$W/nri/nri.sock'
  plugin_path = '$W/nri/plugins'
  plugin_config_path = '$W/nri/conf.d'
  plugin_request_timeout = '$TIMEOUT'
`

// networkConfig is a bridge of the stage's network namespace. Addresses are kept in the stage's folder.
func (s *Stage) networkConfig() string {
	return strings.ReplaceAll(`{"cniVersion": "1.0.0", "name": "stage", "plugins": [
  {"type": "bridge", "bridge": "stage0", "isDefaultGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "dataDir": "$W/cni"}}]}
`, "$W", s.dir)
}

// ready returns nil when the runtime can run pods on the host's network.
func (r *Runtime) ready(ctx context.Context) error {
	answer, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady && !c.GetStatus() {
			return errors.New(c.GetReason() + ": " + c.GetMessage())
		}
	}
	return nil
}
