package v1alpha1_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The sample in the reference is loaded as the scheduler loads it, names every argument and shows the defaults.
func TestTheSampleConfigurationNamesEveryArgument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/scheduler-config.yaml")
	testkit.Check(t, err)
	var sample struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args json.RawMessage
			}
		}
	}
	testkit.Check(t, yaml.Unmarshal(text, &sample))
	args := sample.Profiles[0].PluginConfig
	got, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](&runtime.Unknown{Raw: args[0].Args})
	testkit.Check(t, err)
	want := v1alpha1.Default()
	want.TypeMeta, want.MinSharedCPUs = got.TypeMeta, got.MinSharedCPUs // its default depends on the node
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the sample does not show the defaults (-default +sample):\n%s", diff)
	}
	namesAll(t, args[0].Args, reflect.TypeFor[v1alpha1.NodeNUMAResourceArgs]())

	quotas, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](&runtime.Unknown{Raw: args[1].Args})
	testkit.Check(t, err)
	var defaults v1alpha1.ElasticQuotaArgs
	defaults.SetDefaults()
	// Their defaults are no limit.
	defaults.TypeMeta, defaults.DefaultQuotaGroupMax = quotas.TypeMeta, quotas.DefaultQuotaGroupMax
	defaults.SystemQuotaGroupMax, defaults.DeviceClassMappings = quotas.SystemQuotaGroupMax, quotas.DeviceClassMappings
	if diff := cmp.Diff(defaults, quotas); diff != "" {
		t.Errorf("the sample does not show the defaults (-default +sample):\n%s", diff)
	}
	namesAll(t, args[1].Args, reflect.TypeFor[v1alpha1.ElasticQuotaArgs]())

	gangs, err := v1alpha1.Decode[v1alpha1.CoschedulingArgs](&runtime.Unknown{Raw: args[2].Args})
	testkit.Check(t, err)
	ofGangs := v1alpha1.CoschedulingArgs{
		TypeMeta: gangs.TypeMeta, ControllerWorkers: gangs.ControllerWorkers,
		SkipCheckScheduleCycle: gangs.SkipCheckScheduleCycle, AwareNetworkTopology: gangs.AwareNetworkTopology,
	}
	ofGangs.SetDefaults()
	if diff := cmp.Diff(ofGangs, gangs); diff != "" {
		t.Errorf("the sample does not show the defaults of Coscheduling (-default +sample):\n%s", diff)
	}
	namesAll(t, args[2].Args, reflect.TypeFor[v1alpha1.CoschedulingArgs]())

	devices, err := v1alpha1.Decode[v1alpha1.DeviceShareArgs](&runtime.Unknown{Raw: args[3].Args})
	testkit.Check(t, err)
	var ofDevices v1alpha1.DeviceShareArgs
	ofDevices.SetDefaults()
	ofDevices.TypeMeta, ofDevices.GPUShareUnsupportedModels = devices.TypeMeta, devices.GPUShareUnsupportedModels
	if diff := cmp.Diff(ofDevices, devices); diff != "" {
		t.Errorf("the sample does not show the defaults of DeviceShare (-default +sample):\n%s", diff)
	}
	namesAll(t, args[3].Args, reflect.TypeFor[v1alpha1.DeviceShareArgs]())

	rooms, err := v1alpha1.Decode[v1alpha1.ReservationArgs](&runtime.Unknown{Raw: args[4].Args})
	testkit.Check(t, err)
	if keep := rooms.KeepEnded(); keep != 24*time.Hour {
		t.Errorf("the sample keeps ended Reservations for %v, want the default of a day", keep)
	}
	namesAll(t, args[4].Args, reflect.TypeFor[v1alpha1.ReservationArgs]())

	load, err := v1alpha1.Decode[v1alpha1.LoadAwareSchedulingArgs](&runtime.Unknown{Raw: args[5].Args})
	testkit.Check(t, err)
	var ofLoad v1alpha1.LoadAwareSchedulingArgs
	ofLoad.SetDefaults()
	ofLoad.TypeMeta, load.ProdUsageThresholds, load.SupportedResources = load.TypeMeta, nil, nil
	if diff := cmp.Diff(ofLoad, load); diff != "" {
		t.Errorf("the sample does not show the defaults of LoadAwareScheduling (-default +sample):\n%s", diff)
	}
	namesAll(t, args[5].Args, reflect.TypeFor[v1alpha1.LoadAwareSchedulingArgs]())

	_, err = v1alpha1.Decode[v1alpha1.ScarceResourceAvoidanceArgs](&runtime.Unknown{Raw: args[6].Args})
	testkit.Check(t, err)
	namesAll(t, args[6].Args, reflect.TypeFor[v1alpha1.ScarceResourceAvoidanceArgs]())
}

func namesAll(t *testing.T, args json.RawMessage, argsType reflect.Type) {
	t.Helper()
	var said map[string]any
	testkit.Check(t, json.Unmarshal(args, &said))
	for f := range argsType.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, ok := said[name]; name != "" && !ok {
			t.Errorf("the sample does not name %s", name)
		}
	}
}
