package cli

import (
	"os"
	"path/filepath"

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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
