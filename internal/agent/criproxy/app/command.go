package app

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/config/runtimeproxy"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/agent/criproxy/setup"
)

const (
	defaultListen  = "/run/tenon/cri.sock"
	crioListen     = "/run/tenon/run/crio/crio.sock" // kubelets know CRI-O by the end of it
	defaultRuntime = "unix:///run/containerd/containerd.sock"
	defaultHooks   = "/etc/runtime/hookserver.d"
	defaultAgent   = "/run/tenon/hooks.sock"
	defaultKubelet = "/etc/kubernetes/kubelet.conf.d"
)

// NewCommand returns the command line of tenon-runtime-proxy.
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tenon-runtime-proxy",
		Short: "Stands between a kubelet and a container runtime without NRI, and asks tenon-agent",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },

		SilenceUsage: true,
		Version:      version.String(),
	}
	c.Flags().Bool("version", false, "print the version")
	c.AddCommand(newRunCommand(), newCheckCommand(),
		newSetupCommand("install", "Put the proxy into the kubelet's way", setup.Setup.Install),
		newSetupCommand("uninstall", "Take the proxy out of the kubelet's way", setup.Setup.Uninstall))
	return c
}

func newRunCommand() *cobra.Command {
	var e endpoints
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the proxy",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := e.read(c.Flags())
			if err == nil {
				err = settings.Locate(e.Problems()...)
			}
			if err != nil {
				return err
			}
			p, err := criproxy.New(e.Options)
			if err != nil {
				return err
			}
			return p.Run(c.Context(), func() { notify(c.Context(), os.Getenv("NOTIFY_SOCKET")) })
		},
	}
	e.add(c.Flags())
	var all flag.FlagSet
	klog.InitFlags(&all)
	c.Flags().AddGoFlag(all.Lookup("v")) // the one flag of the log that is worth it
	return c
}

// endpoints are the options that all verbs have, by flags or by a file.
type endpoints struct {
	criproxy.Options
	file string
}

func (e *endpoints) add(fs *pflag.FlagSet) {
	fs.StringVar(&e.file, "config", "", "`file` with a RuntimeProxyConfiguration; flags win over it")
	fs.StringVar(&e.Listen, "listen", "",
		"unix socket that the kubelet connects to (default "+defaultListen+"; in front of CRI-O "+crioListen+")")
	fs.StringVar(&e.Runtime, "runtime", defaultRuntime, "the container runtime's unix socket")
	fs.StringVar(&e.Images, "image-endpoint", "", "the image service's unix socket, if it differs from the runtime's")
	fs.StringVar(&e.HooksDir, "hooks-dir", defaultHooks, "folder of hook servers' registrations")
}

// read adds what the file says.
func (e *endpoints) read(fs *pflag.FlagSet) (strict.Settings, error) {
	d, err := strict.ReadFile("--config", e.file)
	if err != nil {
		return strict.Settings{}, err
	}
	return e.apply(fs, d)
}

func (e *endpoints) apply(fs *pflag.FlagSet, d *strict.Document) (strict.Settings, error) {
	var schema runtimeproxy.Configuration
	if d != nil {
		problems := d.DecodeKind(runtimeproxy.APIVersion, runtimeproxy.Kind, &schema)
		if err := problems.Err(); err != nil {
			return strict.Settings{}, err
		}
	}
	settings, err := strict.Apply(d, schema, strict.Flags{
		Given: fs.Changed,
		Set:   func(name, text string) error { return fs.Lookup(name).Value.Set(text) },
		Text:  func(name string) string { return fs.Lookup(name).Value.String() },
	})
	e.Listen = listenFor(e.Listen, e.Runtime)
	return settings, err
}

// CheckConfig finds everything wrong in a configuration file, and returns the settings that it would give.
func CheckConfig(d *strict.Document) (strict.Settings, error) {
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	var e endpoints
	e.add(fs)
	settings, err := e.apply(fs, d)
	if err == nil {
		err = settings.Locate(e.Problems()...)
	}
	return settings, err
}

// listenFor returns the socket to listen on where none was asked for.
func listenFor(listen, runtime string) string {
	switch {
	case listen != "":
		return listen
	case criproxy.IsCRIO(runtime):
		return crioListen
	}
	return defaultListen
}

// notify reports to systemd that the proxy listens, so that units ordered after it may start.
func notify(ctx context.Context, socket string) {
	if socket == "" {
		return
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err == nil {
		_, err = io.WriteString(conn, "READY=1")
		_ = conn.Close()
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to notify the service manager")
	}
}

func newCheckCommand() *cobra.Command {
	var e endpoints
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "check",
		Short: "Ask the runtime for its version through the proxy, and read the registrations of hook servers",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := e.read(c.Flags()); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			return criproxy.Check(ctx, c.OutOrStdout(), e.Listen, e.HooksDir)
		},
	}
	e.add(c.Flags())
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "time limit for the runtime's answer")
	return c
}

func newSetupCommand(use, short string, do func(setup.Setup, context.Context) ([]string, error)) *cobra.Command {
	var s setup.Setup
	var e endpoints
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := e.read(c.Flags()); err != nil {
				return err
			}
			s.Listen, s.HooksDir = e.Listen, e.HooksDir
			did, err := do(s, c.Context())
			for _, line := range did {
				fmt.Fprintln(c.OutOrStdout(), line)
			}
			return err
		},
	}
	e.add(c.Flags())
	c.Flags().StringVar(&s.Root, "root", "/", "directory to use as the node's /")
	c.Flags().StringVar(&s.KubeletDir, "kubelet-config-dir", defaultKubelet, "the kubelet's --config-dir")
	c.Flags().StringVar(&s.AgentSocket, "agent-socket", defaultAgent, "the --hook-socket of tenon-agent")
	return c
}
