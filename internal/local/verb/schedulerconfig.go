package verb

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	manager "github.com/tenon-project/tenon/internal/control/app"
	"github.com/tenon-project/tenon/internal/local/simnode"
	schedapp "github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
)

// schedulerConfig is what a local cluster takes from the KubeSchedulerConfiguration of --scheduler-config.
type schedulerConfig struct {
	file     string   // absolute; empty for none
	profiles []string // the names that it serves; none without a file
	// quotas are how the manager divides quotas: by the arguments of ElasticQuota in the file, as with the chart.
	quotas *manager.QuotaOptions
}

// readSchedulerConfig checks a file as tenon-scheduler does at its start.
func readSchedulerConfig(file string) (c schedulerConfig, err error) {
	c.quotas = manager.DefaultQuotaOptions()
	if file == "" {
		return c, nil
	}
	read, err := schedapp.ReadConfig("--scheduler-config", file)
	if err != nil {
		return c, err
	}
	for i := len(read.Profiles) - 1; i >= 0; i-- { // the first profile with arguments of quotas decides
		c.profiles = append(c.profiles, read.Profiles[i].SchedulerName)
		for _, plugin := range read.Profiles[i].PluginConfig {
			written, ok := plugin.Args.(*runtime.Unknown)
			if !ok || plugin.Name != elasticquota.Name {
				continue
			}
			a, err := config.Decode[config.ElasticQuotaArgs](written)
			if err != nil {
				return c, fmt.Errorf("read the arguments of quotas in %s: %w", file, err)
			}
			c.quotas = manager.NewQuotaOptions(&a)
		}
	}
	slices.Reverse(c.profiles)
	c.file, err = filepath.Abs(file)
	return c, err
}

// names are the schedulers whose pods count: those that manifests name in any local cluster, and the file's.
func (c schedulerConfig) names() []string {
	all := simnode.SchedulerNames()
	for _, name := range c.profiles {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// write writes the file to another one, with the credential of a local cluster in place of its own.
func (c schedulerConfig) write(to, kubeconfig string) error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("read %s: %w", c.file, err)
	}
	connection, _ := tree["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = kubeconfig
	tree["clientConnection"] = connection
	if text, err = yaml.Marshal(tree); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return os.WriteFile(to, text, 0o600)
}

// checkDemo refuses a file that leaves the pods of the demo without a scheduler.
func (c schedulerConfig) checkDemo() error {
	const named = "tenon-scheduler" // by every manifest of the demo
	if c.file == "" || slices.Contains(c.profiles, named) {
		return nil
	}
	return fmt.Errorf("--scheduler-config=%s: a profile must have the schedulerName %s, which the pods of --demo "+
		"name: the profiles have %s", c.file, named, strings.Join(c.profiles, ", "))
}
