package nri_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/nri/pkg/stub"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
)

// silent drops what the library says.
type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	nrilog.Set(silent{})
	m.Run()
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	poll, end := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("it never came: %s", what)
		}
	}
}

// box is a container of the runtime.
type box struct {
	*api.Container
	group string
	// adjust is what the plugins answered to its creation.
	adjust *api.ContainerAdjustment
}

// runtime is the other side of the socket: the NRI part of a container runtime, over a simulated kernel.
type runtime struct {
	t      testing.TB
	tree   *kernel.Tree
	socket string
	// front is where plugins connect: what is cut there ends as it does when the runtime dies.
	front net.Listener
	// devices are those of the node; nil for one without.
	devices *inject.Node
	nri     *adaptation.Adaptation
	synced  atomic.Int64
	// mute: the next plugin that connects gets answers only, and no question.
	mute atomic.Bool

	mu     sync.Mutex // the one lock of the node, as containerd has it
	pods   map[string]*api.PodSandbox
	boxes  map[string]*box
	pushed map[string]string
	wires  []net.Conn
}

func newRuntime(t testing.TB, tree *kernel.Tree) *runtime {
	t.Helper()
	r := &runtime{
		t: t, tree: tree, socket: filepath.Join(t.TempDir(), "nri.sock"),
		pods: map[string]*api.PodSandbox{}, boxes: map[string]*box{}, pushed: map[string]string{},
	}
	front, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(filepath.Dir(r.socket), "front.sock"))
	testkit.Check(t, err)
	r.front = front
	t.Cleanup(func() { _ = front.Close(); r.cut() })
	go r.accept()
	r.boot()
	return r
}

// accept joins each plugin to the runtime.
func (r *runtime) accept() {
	for {
		plugin, err := r.front.Accept()
		if err != nil {
			return
		}
		inner, err := new(net.Dialer).DialContext(context.Background(), "unix", r.socket)
		if err != nil {
			_ = plugin.Close()
			continue
		}
		r.mu.Lock()
		r.wires = append(r.wires, plugin, inner)
		r.mu.Unlock()
		ask := func() { _, _ = io.Copy(plugin, inner) }
		if r.mute.Swap(false) {
			ask = func() { copyAnswers(plugin, inner) }
		}
		go func() { _, _ = io.Copy(inner, plugin); _ = inner.Close() }()
		go func() { ask(); _ = plugin.Close() }()
	}
}

// copyAnswers copies what a runtime answers a plugin and drops what it asks: frames of another number.
func copyAnswers(plugin io.Writer, runtime io.Reader) {
	const headBytes = 8 // number and length
	for {
		frame := make([]byte, headBytes)
		if _, err := io.ReadFull(runtime, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[4:]))...)
		if _, err := io.ReadFull(runtime, frame[headBytes:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(frame) != uint32(multiplex.RuntimeServiceConn) {
			continue
		}
		if _, err := plugin.Write(frame); err != nil {
			return
		}
	}
}

// cut ends all connections.
func (r *runtime) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wires {
		_ = w.Close()
	}
	r.wires = nil
}

// boot starts the runtime, anew or for the first time.
func (r *runtime) boot() {
	r.t.Helper()
	dir := r.t.TempDir()
	a, err := adaptation.New("containerd", "v2.4.2", r.sync, r.update, adaptation.WithSocketPath(r.socket),
		adaptation.WithPluginPath(dir), adaptation.WithPluginConfigPath(dir),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	testkit.Check(r.t, err)
	testkit.Check(r.t, a.Start())
	r.nri = a
	r.t.Cleanup(a.Stop)
}

func (r *runtime) sync(ctx context.Context, update adaptation.SyncCB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pods []*api.PodSandbox
	for _, p := range r.pods {
		pods = append(pods, p)
	}
	var boxes []*api.Container
	for _, b := range r.boxes {
		boxes = append(boxes, b.Container)
	}
	updates, err := update(ctx, pods, boxes)
	if err == nil {
		_, err = r.write(updates)
		r.synced.Add(1)
	}
	return err
}

func (r *runtime) update(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range updates {
		r.pushed[u.GetContainerId()] = u.GetLinux().GetResources().GetCpu().GetCpus()
	}
	return r.write(updates)
}

// write does updates. The caller holds mu.
func (r *runtime) write(updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate, err error) {
	for _, u := range updates {
		b := r.boxes[u.GetContainerId()]
		cpus := u.GetLinux().GetResources().GetCpu().GetCpus()
		if b == nil || cpus == "" {
			continue
		}
		b.Linux.Resources.Cpu.Cpus = cpus
		if err := r.tree.Write(b.group, desired.CPUs, cpus); err != nil {
			failed = append(failed, u)
		}
	}
	return failed, nil
}

func (r *runtime) run(p *api.PodSandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := strings.TrimPrefix(p.Linux.CgroupParent, "/") + "/" + p.Id
	testkit.Check(r.t, r.tree.MkdirAll(pause))
	_, err := r.tree.Spawn(pause)
	testkit.Check(r.t, err)
	r.pods[p.Id] = p
	return r.nri.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: p})
}

// create makes a container, as a runtime does: what NRI says is in its spec from the beginning.
func (r *runtime) create(p *api.PodSandbox, id string) (*box, error) {
	return r.createWith(p, id, func(*api.Container) {})
}

// createWith is create of a container that its image, its pod and the kubelet give more.
func (r *runtime) createWith(p *api.PodSandbox, id string, change func(*api.Container)) (*box, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &box{group: strings.TrimPrefix(p.Linux.CgroupParent, "/") + "/" + id, Container: &api.Container{
		Id: id, PodSandboxId: p.Id, Name: "main", State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{
			CgroupsPath: p.Linux.CgroupParent + "/" + id,
			Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(512)}},
		},
	}}
	change(b.Container)
	reply, err := r.nri.CreateContainer(context.Background(),
		&api.CreateContainerRequest{Pod: p, Container: b.Container})
	if err != nil {
		return nil, err
	}
	if _, err := r.write(reply.Update); err != nil {
		return nil, err
	}
	b.adjust = reply.GetAdjust()
	cpu := reply.GetAdjust().GetLinux().GetResources().GetCpu()
	b.Linux.Resources.Cpu.Cpus, b.Linux.Resources.Cpu.Mems, b.Linux.Resources.Cpu.Quota = cpu.GetCpus(), cpu.GetMems(),
		cpu.GetQuota()
	testkit.Check(r.t, r.tree.MkdirAll(b.group))
	if cpu.GetCpus() != "" {
		testkit.Check(r.t, r.tree.Write(b.group, desired.CPUs, cpu.GetCpus()))
	}
	r.boxes[id] = b
	return b, nil
}

func (r *runtime) start(p *api.PodSandbox, b *box) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.nri.StartContainer(context.Background(),
		&api.StartContainerRequest{Pod: p, Container: b.Container}); err != nil {
		return err
	}
	b.State = api.ContainerState_CONTAINER_RUNNING
	_, err := r.tree.Spawn(b.group)
	return err
}

// deploy runs a pod with one container.
func (r *runtime) deploy(p *api.PodSandbox, id string) (*box, error) {
	if err := r.run(p); err != nil {
		return nil, err
	}
	b, err := r.create(p, id)
	if err != nil {
		return nil, err
	}
	return b, r.start(p, b)
}

// resize is the kubelet's UpdateContainerResources.
func (r *runtime) resize(p *api.PodSandbox, b *box, asked *api.LinuxResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := context.Background()
	reply, err := r.nri.UpdateContainer(ctx,
		&api.UpdateContainerRequest{Pod: p, Container: b.Container, LinuxResources: asked})
	if err != nil {
		return err
	}
	if _, err := r.write(reply.Update); err != nil {
		return err
	}
	return r.nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: p, Container: b.Container})
}

// end stops a pod and its container, and removes the container. Kubelets remove the sandbox later.
func (r *runtime) end(p *api.PodSandbox, b *box) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := context.Background()
	testkit.Check(r.t, r.tree.Kill(b.group))
	_, err := r.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: b.Container})
	testkit.Check(r.t, err)
	testkit.Check(r.t, r.tree.Rmdir(b.group))
	testkit.Check(r.t, r.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: b.Container}))
	pause := strings.TrimPrefix(p.Linux.CgroupParent, "/") + "/" + p.Id
	testkit.Check(r.t, r.tree.Kill(pause))
	testkit.Check(r.t, r.tree.Rmdir(pause))
	testkit.Check(r.t, r.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}))
	delete(r.boxes, b.Id)
}

// remove removes a sandbox that has ended.
func (r *runtime) remove(p *api.PodSandbox) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	testkit.Check(r.t, r.nri.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{Pod: p}))
	delete(r.pods, p.Id)
}

func (r *runtime) cpus(b *box) string {
	got, err := r.tree.Read(b.group, desired.CPUs)
	testkit.Check(r.t, err)
	return got
}

func (r *runtime) lastPushed(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pushed[id]
}

// pod is a sandbox; class and cpus are "" for one without.
func pod(uid, class, cpus string) *api.PodSandbox {
	p := &api.PodSandbox{
		Id: "sb-" + uid, Uid: uid, Namespace: "ns", Name: "pod-" + uid, Labels: map[string]string{},
		Annotations: map[string]string{},
		Linux:       &api.LinuxPodSandbox{CgroupParent: "/kubepods/burstable/pod" + uid},
	}
	if class != "" {
		p.Labels[annotation.QoSClass] = class
	}
	if cpus != "" {
		p.Annotations[annotation.ResourceStatusKey] = fmt.Sprintf(`{"cpuset":%q}`, cpus)
	}
	return p
}

// agent is the agent's side: engine, service and client, over the same kernel.
type agent struct {
	engine  *apply.Engine
	service *hook.Service
	stop    func()
	lost    atomic.Int64
	runtime atomic.Pointer[transport.Runtime]
	fenced  atomic.Int64
	slow    atomic.Int64 // calls that took too long
}

func (a *agent) Connected(_ context.Context, r transport.Runtime) { a.runtime.Store(&r) }
func (a *agent) Disconnected(context.Context, error)              { a.lost.Add(1) }

func (a *agent) Timed(_ string, d time.Duration) {
	if d >= transport.GuardTime {
		a.slow.Add(1)
	}
}

func (a *agent) Fenced(yes bool) {
	if yes {
		a.fenced.Add(1)
	}
}

// owner is the agent of a node with these devices.
type owner struct {
	hook.Standalone
	devices *inject.Node
}

func (o owner) Devices() *inject.Node { return o.devices }

func newTree(t testing.TB) (*kernel.Tree, *topo.Machine) {
	t.Helper()
	var spec topo.Spec
	for id := range 8 {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: id, Core: id, L3: -1, Socket: 0, NUMA: 0})
	}
	spec.NUMA = []topo.NUMASpec{{ID: 0, MemoryBytes: 1 << 30}}
	m, err := topo.New(spec)
	testkit.Check(t, err)
	tree, err := kernel.Open(kernel.Options{Machine: m})
	testkit.Check(t, err)
	testkit.Check(t, tree.MkdirAll("kubepods/burstable"))
	return tree, m
}

// startAgent runs an agent and waits until the runtime has synchronized it.
func startAgent(t testing.TB, r *runtime, m *topo.Machine, change ...func(*transport.NRIOptions)) *agent {
	t.Helper()
	a := &agent{}
	a.engine = apply.New(apply.Options{Cgroup: r.tree})
	a.service = hook.New(hook.Options{Engine: a.engine, Agent: owner{devices: r.devices}})
	a.engine.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
	a.engine.Prune(func(func(string) bool) {})
	o := transport.NRIOptions{
		Socket: r.front.Addr().String(), Handler: a.service, Link: a,
	}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = nri.Run(ctx, o) })
	wg.Go(func() { _ = a.engine.Run(ctx) })
	a.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(a.stop)
	eventually(t, "the connection", func() bool { return a.runtime.Load() != nil })
	return a
}

// rival is another plugin; create is what it does at the creation of a container.
type rival struct {
	create func(*api.ContainerAdjustment)
}

func (p *rival) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment,
	[]*api.ContainerUpdate, error,
) {
	a := &api.ContainerAdjustment{}
	p.create(a)
	return a, nil, nil
}

func (p *rival) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (p *rival) join(t testing.TB, r *runtime) {
	t.Helper()
	before := r.synced.Load()
	s, err := stub.New(p, stub.WithPluginName("rival"), stub.WithPluginIdx("20"), stub.WithSocketPath(r.socket),
		stub.WithLogger(silent{}))
	testkit.Check(t, err)
	testkit.Check(t, s.Start(t.Context()))
	t.Cleanup(s.Stop)
	eventually(t, "the rival", func() bool { return r.synced.Load() > before })
}
