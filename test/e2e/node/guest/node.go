package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// Ready is what runs in a guest before it is saved: a container runtime that has the images.
const Ready = `set -e
setsid containerd >/var/log/containerd.log 2>&1 </dev/null &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr -n k8s.io images import /images.tar
sync
`

// KubeletPolicy are the settings of a kubelet that differ from guest to guest.
type KubeletPolicy struct {
	CPUManager string // none, static
	Reserved   string // CPUs
}

// dropIns is the folder of further settings of the kubelet.
const dropIns = "/etc/kubernetes/kubelet.conf.d"

// Node is a guest that is a node of a cluster.
type Node struct {
	Name  string
	Shape vm.Shape
	Guest *vm.Guest
	// Kubelet is what the kubelet is started with.
	Kubelet KubeletPolicy
}

// Root is the group of all pods.
func (n *Node) Root() string {
	if n.Shape.Systemd {
		return "kubepods.slice"
	}
	return "kubepods"
}

// Write puts files below a folder of the guest.
func (n *Node) Write(ctx context.Context, folder string, files map[string][]byte) error {
	const end = "end-of-the-file"
	var script strings.Builder
	fmt.Fprintf(&script, "set -e\nmkdir -p %s\n", folder)
	for name, text := range files {
		fmt.Fprintf(&script, "cat >%s/%s <<'%s'\n%s\n%s\n", folder, name, end, text, end)
	}
	_, err := n.Guest.Run(ctx, script.String())
	return err
}

// StartKubelet starts the kubelet; state of an earlier one is kept.
func (n *Node) StartKubelet(ctx context.Context) error {
	_, err := n.Guest.Run(ctx, Spawn("kubelet", "/bin/kubelet", "--config=/etc/kubernetes/kubelet.yaml",
		"--config-dir="+dropIns,
		"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig", "--hostname-override="+n.Name, "--node-ip="+vm.Address,
		"--cert-dir=/var/lib/kubelet/pki"))
	return err
}

// Spawn is a script that starts a program which goes on when the script ends, and keeps its process id and its log.
func Spawn(name string, command ...string) string {
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return fmt.Sprintf("setsid %s >>/var/log/%[2]s.log 2>&1 </dev/null & echo $! >/run/%[2]s.pid",
		strings.Join(quoted, " "), name)
}

// Kill ends a program of the guest by its name and a signal, and waits until it is gone.
func (n *Node) Kill(ctx context.Context, signal, name string) error {
	_, err := n.Guest.Run(ctx, fmt.Sprintf(`pid=$(pidof %[2]s) || { echo "%[2]s does not run"; exit 1; }
kill -%[1]s $pid
while kill -0 $pid 2>/dev/null; do sleep 0.05; done`, signal, name))
	return err
}

// configuration is the kubelet's.
func (n *Node) configuration() []byte {
	driver := "cgroupfs"
	if n.Shape.Systemd {
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
		"cpuManagerPolicy: " + n.Kubelet.CPUManager,
		"cpuManagerReconcilePeriod: 5s",
		"reservedSystemCPUs: \"" + n.Kubelet.Reserved + "\"",
		"failSwapOn: false",
		"runtimeRequestTimeout: 10m", // emulated machines are slow
		"imageGCHighThresholdPercent: 99",
		"imageGCLowThresholdPercent: 98",
		`evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}`,
		"maxPods: 60",
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// Join starts the guest's kubelet with its credentials.
func (n *Node) Join(ctx context.Context, credentials map[string][]byte) error {
	if _, err := n.Guest.Run(ctx, "mkdir -p "+dropIns); err != nil {
		return err
	}
	const folder = "/etc/kubernetes"
	if err := errors.Join(n.Write(ctx, folder, credentials),
		n.Write(ctx, folder, map[string][]byte{"kubelet.yaml": n.configuration()})); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}

// Credentials issues those of a node's kubelet, by their names in the guest. server is the API server as the guest
// reaches it.
func Credentials(authority *pki.Authority, node string, server *api.Cluster) (map[string][]byte, error) {
	user, err := authority.Issue("guest-kubelet-"+node,
		pki.Subject{User: "system:node:" + node, Groups: []string{"system:nodes"}})
	if err != nil {
		return nil, err
	}
	serving, err := authority.Issue("guest-serving-"+node,
		pki.Subject{User: "system:node:" + node, Hosts: []string{node, vm.Address, "127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	file, err := kubeconfig(server, &api.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"kubelet.kubeconfig": file, "ca.crt": authority.Certificate(), "kubelet.crt": serving.Cert,
		"kubelet.key": serving.Key,
	}, nil
}

func kubeconfig(server *api.Cluster, user *api.AuthInfo) ([]byte, error) {
	const name = "tenon"
	return clientcmd.Write(api.Config{
		Clusters: map[string]*api.Cluster{name: server}, AuthInfos: map[string]*api.AuthInfo{name: user},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// Logs returns the end of what the programs of the guest wrote.
func (n *Node) Logs(ctx context.Context, names ...string) string {
	slices.Sort(names)
	var script strings.Builder
	for _, name := range names {
		fmt.Fprintf(&script, "echo \"== %[1]s\"; tail -n 60 /var/log/%[1]s.log 2>/dev/null; ", name)
	}
	text, err := n.Guest.Run(ctx, script.String()+"true")
	if err != nil {
		return err.Error()
	}
	return text
}

// Look reads all groups of pods that hold processes, at one time.
func (n *Node) Look(ctx context.Context) (groups []wire.Group, err error) {
	text, err := n.Guest.Run(ctx, "inside look "+n.Root())
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal([]byte(text), &groups)
	return groups, err
}

// Containers returns the groups of a pod's containers: of those that run a program of the tests, and of the sandbox.
func Containers(groups []wire.Group, uid types.UID) (own []wire.Group, sandbox []wire.Group) {
	for _, g := range groups {
		if !strings.Contains(strings.ReplaceAll(g.Path, "_", "-"), string(uid)) { // systemd's names have no dashes
			continue
		}
		if g.Processes[0].Class != "" || g.Processes[0].Name == "probe" {
			own = append(own, g)
		} else {
			sandbox = append(sandbox, g)
		}
	}
	return own, sandbox
}

// Confined reports how a pod's groups and processes differ from a set of CPUs: an error that names the first
// difference.
func Confined(groups []wire.Group, p *corev1.Pod, want cpuset.Set) error {
	own, _ := Containers(groups, p.UID)
	if len(own) == 0 {
		return fmt.Errorf("pod %s: no group of its containers holds a process", p.Name)
	}
	for _, g := range own {
		for _, name := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			if g.Files[name] != want.String() {
				return fmt.Errorf("pod %s: %s of %s is %q, want %q", p.Name, name, g.Path, g.Files[name], want)
			}
		}
		for _, process := range g.Processes {
			if process.CPUs != want.String() {
				return fmt.Errorf("pod %s: the kernel allows process %s the CPUs %q, want %q", p.Name, process.Name,
					process.CPUs, want)
			}
		}
	}
	return nil
}
