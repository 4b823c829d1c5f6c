package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/view"
)

// notShown stands for a value that may be a secret.
const notShown = "(not shown)"

// configuration returns the settings in force with their origins, and the feature gates that differ from the defaults
// of Kubernetes. It has no certificates, keys and credentials of extenders, and no arguments of plugins that neither
// Tenon nor kube-scheduler has.
func (s *Scheduler) configuration() (*view.Configuration, error) {
	c := s.config.ComponentConfig.DeepCopy()
	for i := range c.Extenders {
		e := &c.Extenders[i]
		e.URLPrefix = withoutCredentials(e.URLPrefix)
		if tls := e.TLSConfig; tls != nil {
			tls.CertData, tls.KeyData, tls.CAData = nil, nil, nil
		}
	}
	for i := range c.Profiles {
		if err := s.completeArguments(&c.Profiles[i]); err != nil {
			return nil, err
		}
	}
	c.APIVersion = configv1.SchemeGroupVersion.String()
	as, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(as.Serializer, configv1.SchemeGroupVersion), c)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	origins, settings := s.options.origins()
	err = eachValue(text, func(_, field, value string) {
		settings = append(settings, view.Setting{
			Field: field, Value: value, Origin: cmp.Or(origins[field], "default"),
		})
	})
	slices.SortFunc(settings, func(a, b view.Setting) int { return strings.Compare(a.Field, b.Field) })
	return &view.Configuration{Settings: settings, Gates: s.options.changedGates()}, err
}

// completeArguments gives the plugins of a profile their arguments with defaults.
func (s *Scheduler) completeArguments(p *schedulerconfig.KubeSchedulerProfile) error {
	running, inTree := s.core.Profiles[p.SchedulerName].ListPlugins(), plugins.NewInTreeRegistry()
	for _, complete := range s.core.Completed {
		if complete.SchedulerName == p.SchedulerName {
			p.PluginConfig = slices.Clone(complete.PluginConfig)
		}
	}
	for name := range arguments() {
		one := []schedulerconfig.PluginConfig{{Name: name, Args: &runtime.Unknown{}}}
		has := slices.ContainsFunc(p.PluginConfig, func(c schedulerconfig.PluginConfig) bool { return c.Name == name })
		if !has && len(unreadArgs(running, one)) == 0 {
			p.PluginConfig = append(p.PluginConfig, one...)
		}
	}
	for i := range p.PluginConfig {
		c := &p.PluginConfig[i]
		args := arguments()[c.Name]
		if written, ok := c.Args.(*runtime.Unknown); ok && args != nil {
			if len(written.Raw) > 0 {
				if err := json.Unmarshal(written.Raw, args); err != nil {
					return fmt.Errorf("arguments of plugin %s: %w", c.Name, err)
				}
			}
			v1alpha1.Complete(args) // they were checked at the start
			text, err := json.Marshal(args)
			if err != nil {
				return fmt.Errorf("arguments of plugin %s: %w", c.Name, err)
			}
			c.Args = &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}
		} else if inTree[c.Name] == nil {
			c.Args = &runtime.Unknown{Raw: []byte(`"` + notShown + `"`), ContentType: runtime.ContentTypeJSON}
		}
	}
	return nil
}

// withoutCredentials returns an address without the user, the password and the query in it.
func withoutCredentials(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return notShown
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// flagFields are the fields that a flag sets. Those of leader election win over the file; the others count without one.
var flagFields = map[string]string{
	"leader-elect":                    "leaderElection.leaderElect",
	"leader-elect-lease-duration":     "leaderElection.leaseDuration",
	"leader-elect-renew-deadline":     "leaderElection.renewDeadline",
	"leader-elect-retry-period":       "leaderElection.retryPeriod",
	"leader-elect-resource-lock":      "leaderElection.resourceLock",
	"leader-elect-resource-name":      "leaderElection.resourceName",
	"leader-elect-resource-namespace": "leaderElection.resourceNamespace",
	"profiling":                       "enableProfiling",
	"contention-profiling":            "enableContentionProfiling",
	"kubeconfig":                      "clientConnection.kubeconfig",
	"kube-api-content-type":           "clientConnection.contentType",
	"kube-api-qps":                    "clientConnection.qps",
	"kube-api-burst":                  "clientConnection.burst",
}

// argsIn is between the path of a plugin's arguments and that of a field of them.
const argsIn = "].args."

// origins returns by field where its value comes from, where that is not a default, and as settings the other flags
// that were given.
func (o *Options) origins() (origins map[string]string, others []view.Setting) {
	origins = map[string]string{}
	if o.file != nil {
		text, err := o.file.JSON()
		if err == nil {
			err = eachValue(text, func(at, field, _ string) {
				p := o.file.Problem(at, "") // for the line
				origins[field] = fmt.Sprintf("%s:%d", p.File, p.Line)
				if head, _, ok := strings.Cut(field, argsIn); ok { // they may be not shown
					at, _, _ = strings.Cut(at, argsIn)
					p = o.file.Problem(at+"].args", "")
					origins[head+"].args"] = fmt.Sprintf("%s:%d", p.File, p.Line)
				}
			})
		}
		if err != nil { // it was read at the start
			return origins, nil
		}
	}
	for _, set := range o.Flags.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			field := flagFields[f.Name]
			switch {
			case !f.Changed:
			case field != "" && (o.file == nil || strings.HasPrefix(f.Name, "leader-elect")):
				origins[field] = "--" + f.Name
			case field == "": // other flags with a field have no effect beside a file
				others = append(others, view.Setting{
					Field: "--" + f.Name, Value: f.Value.String(), Origin: "--" + f.Name,
				})
			}
			if f.Name == "serve-scheduler-names" && f.Changed {
				for i := range o.SchedulerNames {
					origins[fmt.Sprintf("profiles[%d].schedulerName", i)] = "--" + f.Name
				}
			}
		})
	}
	return origins, others
}

// changedGates returns the gates that differ from the defaults of Kubernetes.
func (o *Options) changedGates() []view.Gate {
	changed, all := []view.Gate{}, utilfeature.DefaultMutableFeatureGate.GetAll()
	given := o.Flags.FlagSet("feature gate").Changed("feature-gates")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		enabled, spec := utilfeature.DefaultFeatureGate.Enabled(name), all[name]
		if enabled == spec.Default {
			continue
		}
		origin := "--feature-gates"
		if !given || slices.Contains(o.ownGates, fmt.Sprintf("%s=%t", name, enabled)) {
			origin = "Tenon"
		}
		changed = append(changed, view.Gate{
			Name: string(name), Enabled: enabled, Default: spec.Default,
			Stage: cmp.Or(string(spec.PreRelease), "GA"), Origin: origin,
		})
	}
	return changed
}

// eachValue visits the values of a JSON object: at is the field's path, and field the same with names in place of
// indices where the items of a list have names.
func eachValue(text []byte, visit func(at, field, value string)) error {
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return err
	}
	var walk func(at, field string, value any)
	walk = func(at, field string, value any) {
		switch value := value.(type) {
		case nil:
		case map[string]any:
			for key, v := range value {
				if key != "apiVersion" && key != "kind" {
					walk(strings.TrimPrefix(at+"."+key, "."), strings.TrimPrefix(field+"."+key, "."), v)
				}
			}
		case []any:
			for i, v := range value {
				index := fmt.Sprint(i)
				name := index
				if item, ok := v.(map[string]any); ok {
					if s, ok := item["name"].(string); ok {
						name = s
					}
				}
				walk(at+"["+index+"]", field+"["+name+"]", v)
			}
		default:
			visit(at, field, fmt.Sprint(value))
		}
	}
	walk("", "", tree)
	return nil
}
