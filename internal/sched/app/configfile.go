package app

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/configz"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/nearest"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/scarceresource"
	"github.com/tenon-project/tenon/internal/sched/upstream/topologyspread"
)

// ConfigurationKind is the kind of the scheduler's file, which is kube-scheduler's own.
const ConfigurationKind = "KubeSchedulerConfiguration"

// CheckConfig finds everything wrong in a KubeSchedulerConfiguration. more are the names of plugins beside ours and
// kube-scheduler's.
//
// The file is checked as it is written first, where each problem has its line. Upstream's validation reads the
// converted object, which has defaults beside what was written, so it comes only once nothing else is wrong.
func CheckConfig(d *strict.Document, more ...string) error {
	var c configv1.KubeSchedulerConfiguration
	problems := d.DecodeKind(configv1.SchemeGroupVersion.String(), ConfigurationKind, &c)
	for i := range c.Profiles {
		problems = append(problems, checkProfile(d, fmt.Sprintf("profiles[%d]", i), &c.Profiles[i], more)...)
	}
	if len(problems) > 0 {
		return problems
	}
	text, err := d.JSON()
	if err != nil {
		return d.Locate("", err)
	}
	// kube-scheduler's own validation reads the converted object with all defaults.
	loaded, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if complete, ok := loaded.(*schedulerconfig.KubeSchedulerConfiguration); ok && err == nil {
		complete.APIVersion = configv1.SchemeGroupVersion.String()
		problems = d.Locate("", validation.ValidateKubeSchedulerConfiguration(complete))
	}
	return append(problems, d.Locate("", err)...).Err()
}

// ReadConfig reads the configuration of a file as a scheduler started with it has it. A replay with another
// configuration reads it so: it must place pods as a scheduler with that file would. Errors name the flag that the file
// was given with.
func ReadConfig(flag, name string) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	file, err := strict.ReadFile(flag, name)
	if err == nil && file == nil {
		err = errors.New("the name of the file must not be empty")
	}
	if err == nil {
		err = CheckConfig(file)
	}
	if err != nil {
		return nil, err
	}
	text, err := file.JSON()
	if err != nil {
		return nil, err
	}
	c := &schedulerconfig.KubeSchedulerConfiguration{}
	if _, _, err = scheme.Codecs.UniversalDecoder().Decode(text, nil, c); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	coscheduling.SortQueue(c.Profiles)
	bindFirst(c.Profiles)
	return c, nil
}

// showSettings adds to /configz, which has all values, those of the file with their lines. The last file counts.
func showSettings(d *strict.Document) error {
	const name = "settings"
	configz.Delete(name)
	entry, err := configz.New(name)
	if err != nil {
		return err
	}
	return entry.Set(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.ComponentAPIVersion, "kind": "Settings", name: d.Settings().All,
	}})
}

// plannedPlugins are plugins of Koordinator that a later version will have, with their features.
var plannedPlugins = map[string]string{
	"SchedulingHint": "scheduling hints",
}

// checkProfile checks the names of plugins, and the arguments of ours; kube-scheduler checks those of its own.
func checkProfile(d *strict.Document, path string, p *configv1.KubeSchedulerProfile, more []string,
) (all strict.Problems) {
	known := slices.Concat(more, []string{
		coscheduling.Name, deviceshare.Name, elasticquota.Name, loadaware.Name, nodenumaresource.Name, reserving.Name,
		scarceresource.Name, topologyspread.Name,
	})
	for name := range plugins.NewInTreeRegistry() {
		known = append(known, name)
	}
	slices.Sort(known) // a suggestion must not depend on the order of a map
	check := func(path, name string) {
		if meant := nearest.Word(name, known); meant != "" && meant != name {
			all = append(all, d.Problem(path, "unknown plugin %q, did you mean %q?", name, meant))
		} else if feature := plannedPlugins[name]; feature != "" {
			all = append(all,
				d.Problem(path, "plugin %q is not in this version: %s: %s", name, feature, annotation.Planned))
		} else if meant == "" {
			all = append(all, d.Problem(path, "unknown plugin %q", name))
		}
	}
	if p.Plugins != nil {
		for field, points := range reflect.ValueOf(*p.Plugins).Fields() {
			point, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			for i, e := range points.Interface().(configv1.PluginSet).Enabled {
				check(fmt.Sprintf("%s.plugins.%s.enabled[%d].name", path, point, i), e.Name)
			}
		}
	}
	for i, config := range p.PluginConfig {
		at := fmt.Sprintf("%s.pluginConfig[%d]", path, i)
		check(at+".name", config.Name)
		args := arguments()[config.Name]
		if args == nil {
			continue
		}
		wrong := d.Decode(at+".args", args)
		if len(wrong) == 0 {
			wrong = d.Locate(at+".args", v1alpha1.Complete(args).ToAggregate())
		}
		for _, w := range wrong {
			w.Text = "plugin " + config.Name + ": " + w.Text
			all = append(all, w)
		}
	}
	return all
}

// arguments returns empty arguments of our plugins that have some, by name.
func arguments() map[string]v1alpha1.Arguments {
	return map[string]v1alpha1.Arguments{
		coscheduling.Name: &v1alpha1.CoschedulingArgs{}, deviceshare.Name: &v1alpha1.DeviceShareArgs{},
		elasticquota.Name: &v1alpha1.ElasticQuotaArgs{}, loadaware.Name: &v1alpha1.LoadAwareSchedulingArgs{},
		nodenumaresource.Name: &v1alpha1.NodeNUMAResourceArgs{}, reserving.Name: &v1alpha1.ReservationArgs{},
		scarceresource.Name: &v1alpha1.ScarceResourceAvoidanceArgs{},
	}
}
