package plane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/tenon-project/tenon/internal/local/pki"
)

const apiServerLimit = 2 * time.Minute

func (p *Plane) startAPIServer(ctx context.Context) error {
	flags, err := p.apiServerFlags()
	if err != nil {
		return err
	}
	release, err := p.release(ctx)
	if err != nil {
		return err
	}
	flags = append(flags, nativeGangs(release.Minor())...)
	if p.config.Program != "" {
		if err := p.config.Listener.Close(); err != nil {
			return fmt.Errorf("leave the port to %s: %w", p.config.Program, err)
		}
		flags = append(flags, p.config.Flags...)
		p.supervise("API server", func(ctx context.Context) error { return p.runProgram(ctx, flags) })
		return p.awaitReady(ctx)
	}
	s := options.NewServerRunOptions()
	gates := s.GenericServerRunOptions.ComponentGlobalsRegistry
	err = parse(s.Flags().FlagSets, append(flags, p.config.Flags...), gates)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	// The server's own clients would log the warnings that it sends them.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	s.SecureServing.Listener = p.config.Listener

	p.supervise("API server", func(ctx context.Context) error { return runAPIServer(ctx, s) })
	return p.awaitReady(ctx)
}

func runAPIServer(ctx context.Context, s *options.ServerRunOptions) error {
	completed, err := s.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("validate options: %w", utilerrors.NewAggregate(errs))
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	if err := tellVersion(config); err != nil {
		return err
	}
	complete, err := config.Complete()
	if err != nil {
		return fmt.Errorf("complete configuration: %w", err)
	}
	server, err := app.CreateServerChain(complete)
	if err != nil {
		return fmt.Errorf("create server: %w", err)
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare server: %w", err)
	}
	return prepared.Run(ctx)
}

func (p *Plane) apiServerFlags() ([]string, error) {
	// The names under which the API server is known inside a cluster and on this machine.
	serving, err := p.config.PKI.Issue("apiserver", pki.Subject{User: "kube-apiserver", Hosts: []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "127.0.0.1", "::1", "10.0.0.1",
	}})
	if err != nil {
		return nil, err
	}
	kubelet, err := p.config.PKI.Issue("apiserver-kubelet-client",
		pki.Subject{User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	tokens, err := p.config.PKI.TokenKey()
	if err != nil {
		return nil, err
	}
	ca := p.config.PKI.CertificateFile()
	return []string{
		"--etcd-servers=" + p.store.endpoint,
		"--secure-port=" + strconv.Itoa(p.config.Listener.Addr().(*net.TCPAddr).Port),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// Service endpoints refuse loopback addresses, so the kubernetes service has none.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/16", // its first address is the API server's own
		// Without a service network, webhooks of a Service are reached at its endpoints.
		"--enable-aggregator-routing",
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + ca,
		// Needed by components that let the API server vouch for their callers. No client holds such a certificate.
		"--requestheader-client-ca-file=" + ca,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + tokens.CertFile,
		"--service-account-signing-key-file=" + tokens.KeyFile,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true", // as installers of clusters set it
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority=" + ca,
		"--kubelet-client-certificate=" + kubelet.CertFile,
		"--kubelet-client-key=" + kubelet.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}, nil
}

// nativeGangs returns the flags by which the API server of a minor release serves PodGroups of Kubernetes, in the
// version that the release has. No other component may schedule them. Releases before 1.36 have no version that Tenon
// reads.
func nativeGangs(minor uint) []string {
	served, gates := "v1alpha2", "GenericWorkload=true"
	switch {
	case minor < 36:
		return nil
	case minor >= 37: // their claims are alpha before
		served, gates = "v1beta1", "GenericWorkload=true,DRAWorkloadResourceClaims=true"
	}
	return []string{"--feature-gates=" + gates, "--runtime-config=scheduling.k8s.io/" + served + "=true"}
}

// release returns the release of the API server that is run.
func (p *Plane) release(ctx context.Context) (*version.Version, error) {
	if p.config.Program == "" {
		return kubernetesRelease()
	}
	text, err := exec.CommandContext(ctx, p.config.Program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", p.config.Program, err)
	}
	release, err := version.ParseSemantic(strings.TrimSpace(strings.TrimPrefix(string(text), "Kubernetes ")))
	if err != nil {
		return nil, fmt.Errorf("version of %s: %w", p.config.Program, err)
	}
	return release, nil
}

// runProgram runs the kube-apiserver of another release until ctx ends.
func (p *Plane) runProgram(ctx context.Context, flags []string) error {
	runtime.LockOSThread() // the kernel kills the program when the thread that started it ends
	program := exec.CommandContext(ctx, p.config.Program, flags...)
	program.Stdout, program.Stderr = p.config.Log, p.config.Log
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	program.WaitDelay = stopLimit / 2
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := program.Run(); err != nil {
		return fmt.Errorf("%s: %w", p.config.Program, err)
	}
	return nil
}

// awaitReady polls because the server has no notification that it is ready.
func (p *Plane) awaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.config.Admin)
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	var last error
	ask := func(ctx context.Context) (bool, error) {
		// The listener is open long before anybody accepts: a request hangs rather than fails.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, last = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, p.Err()
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, apiServerLimit, true, ask)
	if err != nil && p.Err() == nil {
		return fmt.Errorf("wait for the API server: %w", errors.Join(err, last))
	}
	return err
}

// parse gives the flags of one component to a set of its own, as the process-wide one would meet the names twice, and
// sets its feature gates.
func parse(sets map[string]*pflag.FlagSet, arguments []string, gates compatibility.ComponentGlobalsRegistry) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if err := gates.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
}

// tellVersion makes the servers name the Kubernetes release that they are. Without it they know only what a release
// build would have linked in, and clients refuse to parse that.
func tellVersion(c *app.Config) error {
	release, err := kubernetesRelease()
	if err != nil {
		return err
	}
	for _, v := range []*compatibility.EffectiveVersion{
		&c.KubeAPIs.ControlPlane.Generic.EffectiveVersion, &c.Aggregator.GenericConfig.EffectiveVersion,
		&c.ApiExtensions.GenericConfig.EffectiveVersion,
	} {
		*v = released{*v, release}
	}
	return nil
}

// kubernetesRelease returns the version of the Kubernetes module that this binary was built with, or, in a test binary,
// which lists no modules, the first release of its minor version.
func kubernetesRelease() (*version.Version, error) {
	build, ok := debug.ReadBuildInfo()
	if !ok || len(build.Deps) == 0 {
		return version.ParseSemantic(baseversion.DefaultKubeBinaryVersion + ".0")
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/kubernetes" {
			return version.ParseSemantic(module.Version)
		}
	}
	return nil, errors.New("read build information: k8s.io/kubernetes is not listed")
}

type released struct {
	compatibility.EffectiveVersion
	release *version.Version
}

// Info implements compatibility.EffectiveVersion.
func (r released) Info() *apiversion.Info {
	info := *r.EffectiveVersion.Info()
	info.Major = fmt.Sprint(r.release.Major())
	info.Minor = fmt.Sprint(r.release.Minor())
	info.GitVersion = "v" + r.release.String()
	info.GitTreeState = "clean"
	if strings.HasPrefix(info.GitCommit, "$") {
		info.GitCommit = ""
	}
	return &info
}
