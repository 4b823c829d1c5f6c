package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// ready is what runs in a guest before it is saved: a container runtime that has the images.
const ready = `set -e
setsid containerd >/var/log/containerd.log 2>&1 </dev/null &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr -n k8s.io images import /images.tar
sync
`

// kubeletPolicy are the settings of a kubelet that differ from guest to guest.
type kubeletPolicy struct {
	cpuManager string // none, static
	reserved   string // CPUs
}

// dropIns is the folder of further settings of the kubelet.
const dropIns = "/etc/kubernetes/kubelet.conf.d"

// node is a guest that is a node of the cluster.
type node struct {
	name  string
	shape vm.Shape
	guest *vm.Guest
	plane *plane
	// kubelet is what the kubelet was started with.
	kubelet kubeletPolicy
	// agent are the arguments of the agent beside its credentials.
	agent []string
}

// root is the group of all pods.
func (n *node) root() string {
	if n.shape.Systemd {
		return "kubepods.slice"
	}
	return "kubepods"
}

// write puts files below a folder of the guest.
func (n *node) write(ctx context.Context, folder string, files map[string][]byte) error {
	const end = "end-of-the-file"
	var script strings.Builder
	fmt.Fprintf(&script, "set -e\nmkdir -p %s\n", folder)
	for name, text := range files {
		fmt.Fprintf(&script, "cat >%s/%s <<'%s'\n%s\n%s\n", folder, name, end, text, end)
	}
	_, err := n.guest.Run(ctx, script.String())
	return err
}

// startKubelet starts the kubelet; state of an earlier one is kept.
func (n *node) startKubelet(ctx context.Context) error {
	_, err := n.guest.Run(ctx, spawn("kubelet", "/bin/kubelet", "--config=/etc/kubernetes/kubelet.yaml",
		"--config-dir="+dropIns,
		"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig", "--hostname-override="+n.name, "--node-ip="+vm.Address,
		"--cert-dir=/var/lib/kubelet/pki"))
	return err
}

// startAgent starts the agent.
func (n *node) startAgent(ctx context.Context) error {
	arguments := []string{
		vm.Programs + "/tenon-agent", "run", "--kubeconfig=/etc/kubernetes/agent.kubeconfig",
		"--node-name=" + n.name,
	}
	_, err := n.guest.Run(ctx, spawn("agent", append(arguments, n.agent...)...))
	return err
}

// startContainerd starts the container runtime again.
func (n *node) startContainerd(ctx context.Context) error {
	_, err := n.guest.Run(ctx, spawn("containerd", "/bin/containerd"))
	return err
}

// spawn is a script that starts a program which goes on when the script ends, and keeps its process id and its log.
func spawn(name string, command ...string) string {
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return fmt.Sprintf("setsid %s >>/var/log/%[2]s.log 2>&1 </dev/null & echo $! >/run/%[2]s.pid",
		strings.Join(quoted, " "), name)
}

// kill ends a program of the guest by its name and a signal, and waits until it is gone.
func (n *node) kill(ctx context.Context, signal, name string) error {
	_, err := n.guest.Run(ctx, fmt.Sprintf(`pid=$(pidof %[2]s) || { echo "%[2]s does not run"; exit 1; }
kill -%[1]s $pid
while kill -0 $pid 2>/dev/null; do sleep 0.05; done`, signal, name))
	return err
}

// configuration is the kubelet's.
func (n *node) configuration() []byte {
	driver := "cgroupfs"
	if n.shape.Systemd {
		driver = "systemd"
	}
	lines := []string{
		"apiVersion: kubelet.config.k8s.io/v1beta1",
		"kind: KubeletConfiguration",
		"authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: " +
			"/etc/kubernetes/ca.crt}}",
		"authorization: {mode: Webhook}",
		"tlsCertFile: /etc/kubernetes/kubelet.crt",
		"tlsPrivateKeyFile: /etc/kubernetes/kubelet.key",
		"containerRuntimeEndpoint: unix:///run/containerd/containerd.sock",
		"cgroupDriver: " + driver,
		"cpuManagerPolicy: " + n.kubelet.cpuManager,
		"cpuManagerReconcilePeriod: 5s",
		"reservedSystemCPUs: \"" + n.kubelet.reserved + "\"",
		"failSwapOn: false",
		"runtimeRequestTimeout: 10m", // emulated machines are slow
		"imageGCHighThresholdPercent: 99",
		"imageGCLowThresholdPercent: 98",
		`evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}`,
		"maxPods: 60",
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// join makes the guest a node: kubelet, and the agent as soon as there is a Node.
func (n *node) join(ctx context.Context) error {
	files, err := n.plane.nodeFiles(n.name)
	if err != nil {
		return err
	}
	if _, err := n.guest.Run(ctx, "mkdir -p "+dropIns); err != nil {
		return err
	}
	files["kubelet.yaml"] = n.configuration()
	if err := n.write(ctx, "/etc/kubernetes", files); err != nil {
		return err
	}
	return n.startKubelet(ctx)
}

// logs returns the end of what the programs of the guest wrote.
func (n *node) logs(ctx context.Context, names ...string) string {
	slices.Sort(names)
	var script strings.Builder
	for _, name := range names {
		fmt.Fprintf(&script, "echo \"== %[1]s\"; tail -n 60 /var/log/%[1]s.log 2>/dev/null; ", name)
	}
	text, err := n.guest.Run(ctx, script.String()+"true")
	if err != nil {
		return err.Error()
	}
	return text
}
