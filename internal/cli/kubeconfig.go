package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// localKubeconfig is the kubeconfig of a local cluster in the default data folder, below the user's home.
const localKubeconfig = ".tenon/kubeconfig"

// LocalCluster returns the kubeconfig of the local cluster when nothing else names a cluster: no KUBECONFIG, no
// kubeconfig in its default place, no service account of a pod. It returns "" otherwise, and without a local cluster.
func LocalCluster(env func(string) string) string {
	if env(clientcmd.RecommendedConfigPathEnvVar) != "" || env("KUBERNETES_SERVICE_HOST") != "" {
		return ""
	}
	home := env("HOME")
	if home == "" || exists(filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)) {
		return ""
	}
	if local := filepath.Join(home, localKubeconfig); exists(local) {
		return local
	}
	return ""
}

// NameCluster returns a ConfigFlags.WrapConfigFn that writes which cluster a command speaks to, once, where that is not
// one of tenon up: both have pods and nodes of the same names.
func NameCluster(flags *genericclioptions.ConfigFlags, errOut io.Writer) func(*rest.Config) *rest.Config {
	var once sync.Once
	return func(c *rest.Config) *rest.Config {
		once.Do(func() {
			if local, err := addressesInKubeconfig(flags); err == nil && len(local) == 0 {
				_, _ = fmt.Fprintf(errOut, "cluster %s\n", c.Host) // nowhere else to tell
			}
		})
		return c
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
