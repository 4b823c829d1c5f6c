package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
)

// devicesProfile is upstream's profile with further plugins, as a filter each, and arguments of NodeResourcesFit.
func devicesProfile(t *testing.T, groups, resources []string, plugins ...string) *config.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	testkit.Check(t, err)
	p := &cfg.Profiles[0]
	for _, name := range plugins {
		p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, config.Plugin{Name: name})
		p.Plugins.Filter.Enabled = append(p.Plugins.Filter.Enabled, config.Plugin{Name: name})
	}
	args := fitArgs(p.PluginConfig)
	if args == nil {
		t.Fatal("upstream's profile has no arguments of NodeResourcesFit")
	}
	args.IgnoredResourceGroups, args.IgnoredResources = groups, resources
	return p
}

func TestNodeResourcesFitLeavesDevicesToDeviceShare(t *testing.T) {
	p := devicesProfile(t, nil, []string{"example.com/x"}, placement.DeviceShare, names.NodeResourcesFit)
	leaveDevices(p)
	args := fitArgs(p.PluginConfig)
	if diff := cmp.Diff([]string{"koordinator.sh"}, args.IgnoredResourceGroups); diff != "" {
		t.Errorf("ignoredResourceGroups (-want +got):\n%s", diff)
	}
	want := []string{"example.com/x", "nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"}
	if diff := cmp.Diff(want, args.IgnoredResources); diff != "" {
		t.Errorf("ignoredResources (-want +got):\n%s", diff)
	}
	if err := checkDevices(p.Plugins, p.PluginConfig); err != nil {
		t.Errorf("the profile is refused: %v", err)
	}
	p = devicesProfile(t, nil, nil, names.NodeResourcesFit)
	if leaveDevices(p); len(fitArgs(p.PluginConfig).IgnoredResources) > 0 {
		t.Error("without DeviceShare no plugin would count GPUs")
	}
}

func TestAProfileThatCountsDevicesTwiceIsRefused(t *testing.T) {
	vendors := []string{"nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"}
	both := []string{placement.DeviceShare, names.NodeResourcesFit}
	for name, test := range map[string]struct {
		groups, resources, plugins []string
		want                       []string
	}{
		"nothing is ignored": {nil, nil, both, []string{
			"ignoredResourceGroups: [koordinator.sh]", "ignoredResources: [nvidia.com/gpu, amd.com/gpu, dcu.com/gpu]",
		}},
		"a vendor lacks": {
			[]string{"koordinator.sh", "x"}, []string{"nvidia.com/gpu", "y/z", "amd.com/gpu"}, both, []string{
				"- name: NodeResourcesFit\n  args:\n", "ignoredResourceGroups: [koordinator.sh, x]",
				"ignoredResources: [nvidia.com/gpu, y/z, amd.com/gpu, dcu.com/gpu]",
			},
		},
		"the group lacks":               {nil, vendors, both, []string{"ignoredResourceGroups: [koordinator.sh]"}},
		"all are ignored":               {[]string{"koordinator.sh"}, vendors, both, nil},
		"a vendor's group is ignored":   {[]string{"koordinator.sh", "nvidia.com"}, vendors[1:], both, nil},
		"DeviceShare is not enabled":    {nil, nil, []string{names.NodeResourcesFit}, nil},
		"NodeResourcesFit is not there": {nil, nil, []string{placement.DeviceShare}, nil},
	} {
		p := devicesProfile(t, test.groups, test.resources, test.plugins...)
		err := checkDevices(p.Plugins, p.PluginConfig)
		if (err != nil) != (test.want != nil) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want it to say %q", name, err, want)
			}
		}
	}
}

// TestArgumentsOfPluginsThatAProfileDoesNotEnableAreWarnedOf: no other arguments are, with a file and without.
func TestArgumentsOfPluginsThatAProfileDoesNotEnableAreWarnedOf(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, test := range map[string]struct{ file, want string }{
		"no file":               {"", ""},
		"a file without plugin": {head + "profiles: [{schedulerName: x}]\n", ""},
		"an enabled plugin": {head + "profiles: [{schedulerName: x, plugins: {multiPoint: {enabled: [{name: " +
			"LoadAwareScheduling}]}}, pluginConfig: [{name: LoadAwareScheduling, args: {}}]}]\n", ""},
		"one that is not enabled": {head + "profiles: [{schedulerName: x, pluginConfig: [{name: LoadAwareScheduling, " +
			"args: {}}, {name: Reservation, args: {}}]}]\n", `"plugins"=["LoadAwareScheduling" "Reservation"]`},
		"one that is disabled": {
			head + "profiles: [{schedulerName: x, plugins: {multiPoint: {disabled: [{name: " +
				"ImageLocality}, {name: VolumeBinding}]}}, pluginConfig: [{name: VolumeBinding, args: {}}]}]\n",
			`"profile"="x" "plugins"=["VolumeBinding"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			if test.file != "" {
				o.ConfigFile = filepath.Join(t.TempDir(), "scheduler.yaml")
				testkit.Check(t, os.WriteFile(o.ConfigFile, []byte(test.file), 0o600))
			}
			o.SecureServing.BindPort, o.Master = 0, "http://127.0.0.1:1"
			got := ""
			log := funcr.New(func(_, line string) {
				if strings.Contains(line, "pluginConfig") {
					got += line
				}
			}, funcr.Options{})
			_, err := Setup(klog.NewContext(t.Context(), log), o)
			testkit.Check(t, err)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("warns %q, want %q", got, test.want)
			}
		})
	}
}
