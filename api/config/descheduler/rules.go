package descheduler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rules checks what fields of the arguments of a plugin must be together.
func (r *reader) rules(plugin, path string, args any) {
	under := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	if said := reflect.ValueOf(args).Elem(); said.Kind() == reflect.Struct {
		r.kind(plugin, path, said.FieldByName("TypeMeta").Interface().(metav1.TypeMeta))
	}
	switch a := args.(type) {
	case *MigrationControllerArgs:
		r.priority(under("priorityThreshold"), a.PriorityThreshold)
		w := a.ObjectLimiters.Namespace
		if w == nil || w.Duration.Duration == 0 {
			break
		}
		if most := w.MaxMigrating; most != nil && most.Type == intstr.String {
			r.refuse(under("objectLimiters.namespace.maxMigrating"),
				"%q is not allowed: use a number, because a namespace has no replicas", most.StrVal)
		} else if most == nil && (a.MaxMigratingPerNamespace == nil || *a.MaxMigratingPerNamespace == 0) {
			r.refuse(under("objectLimiters.namespace.maxMigrating"),
				"must be there without maxMigratingPerNamespace: use a number from 1 on")
		}
	case *DefaultEvictorArgs:
		r.priority(under("priorityThreshold"), a.PriorityThreshold)
		a.protect()
	case *NodeTaintsArgs:
		if len(a.IncludedTaints) > 0 && len(a.ExcludedTaints) > 0 {
			r.refuse(under("excludedTaints"), "is not allowed beside includedTaints: use one of both")
		}
	case *LowNodeUtilizationArgs:
		r.pair(path, "thresholds", "targetThresholds", a.Thresholds, a.TargetThresholds, a.UseDeviationThresholds)
	case *LowNodeLoadArgs:
		if len(a.NodePools) == 0 || len(a.LowThresholds)+len(a.HighThresholds) > 0 {
			r.band(path, a.LoadBand)
		}
		seen := map[string]bool{}
		for n, pool := range a.NodePools {
			at := under(fmt.Sprintf("nodePools[%d]", n))
			if seen[pool.Name] {
				r.refuse(at+".name", "%q is the name of an earlier pool", pool.Name)
			}
			if seen[pool.Name] = true; pool.NodeSelector == nil {
				r.refuse(at+".nodeSelector", "must be there")
			}
			r.band(at, pool.LoadBand)
		}
	case *HighNodeUtilizationArgs:
		r.thresholds(under("thresholds"), a.Thresholds)
	case *FragmentationAwareArgs:
		if r.resources(under("resources"), a.Resources); len(a.Resources) < 2 {
			r.refuse(under("resources"), "has %d resources: use two or more", len(a.Resources))
		}
	case *ScaleDownBinPackArgs:
		r.resources(under("resources"), a.Resources)
		for _, resource := range slices.Sorted(maps.Keys(a.ResourceWeights)) {
			if !slices.Contains(a.Resources, resource) {
				r.refuse(under("resourceWeights."+resource), "is not one of resources: use %s",
					strings.Join(a.Resources, ", "))
			}
		}
	case *CustomPriorityArgs:
		r.groups(under("evictionOrder"), a.EvictionOrder)
	}
}

// kind checks what arguments call themselves; both may be left out.
func (r *reader) kind(plugin, path string, said metav1.TypeMeta) {
	for name, pair := range map[string][2]string{
		"apiVersion": {said.APIVersion, APIVersion}, "kind": {said.Kind, plugin + "Args"},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			r.refuse(path+"."+name, "%q is not allowed: use %s", pair[0], pair[1])
		}
	}
}

func (r *reader) priority(path string, p *PriorityThreshold) {
	if p != nil && (p.Value == nil) == (p.Name == "") {
		r.refuse(path, "needs a value or a name, and not both")
	}
}

// thresholds checks those that must be there.
func (r *reader) thresholds(path string, given Percentages) {
	if len(given) == 0 {
		r.refuse(path, "must be there: use percentages of resources, such as cpu: 20")
	}
	for _, resource := range slices.Sorted(maps.Keys(given)) {
		r.resources(path+"."+resource, []string{resource})
	}
}

// pair checks two thresholds that must be there, with the same resources.
func (r *reader) pair(path, lowName, highName string, low, high Percentages, deviation bool) {
	under := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	r.thresholds(under(lowName), low)
	r.thresholds(under(highName), high)
	for _, resource := range slices.Sorted(maps.Keys(low)) {
		most, ok := high[resource]
		switch least := low[resource]; {
		case !ok && len(high) > 0:
			r.refuse(under(highName), "has no %s, which %s has", resource, lowName)
		case ok && least > most && !deviation:
			r.refuse(under(lowName+"."+resource), "%v is not allowed: use at most the %v of %s", least, most, highName)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(high)) {
		if _, ok := low[resource]; !ok && len(low) > 0 {
			r.refuse(under(lowName), "has no %s, which %s has", resource, highName)
		}
	}
}

// band checks thresholds of measured use.
func (r *reader) band(path string, b LoadBand) {
	r.pair(path, "lowThresholds", "highThresholds", b.LowThresholds, b.HighThresholds, b.UseDeviationThresholds)
	if len(b.ProdLowThresholds)+len(b.ProdHighThresholds) > 0 {
		r.pair(path, "prodLowThresholds", "prodHighThresholds", b.ProdLowThresholds, b.ProdHighThresholds,
			b.UseDeviationThresholds)
	}
	named := map[string]string{}
	for field, given := range map[string]Percentages{
		"lowThresholds": b.LowThresholds, "prodLowThresholds": b.ProdLowThresholds,
	} {
		for resource := range given {
			named[field+"."+resource] = resource
		}
	}
	for resource := range b.ResourceWeights {
		named["resourceWeights."+resource] = resource
	}
	for _, at := range slices.Sorted(maps.Keys(named)) {
		if resource := named[at]; resource != "cpu" && resource != "memory" {
			r.refuse(strings.TrimPrefix(path+"."+at, "."), "%q is not measured: use cpu, memory", resource)
		}
	}
}

// resources checks names of resources: one without a domain must be one of Kubernetes.
func (r *reader) resources(path string, names []string) {
	standard := []string{"cpu", "memory", "pods", "ephemeral-storage"}
	for _, name := range names {
		if !slices.Contains(standard, name) && !strings.Contains(name, "/") && !strings.HasPrefix(name, "hugepages-") {
			r.refuse(path, "%q is not a resource: use %s, hugepages-SIZE or one with a domain, such as nvidia.com/gpu",
				name, strings.Join(standard, ", "))
		}
	}
}

// groups checks groups of nodes.
func (r *reader) groups(path string, groups []NodeGroup) {
	if len(groups) < 2 {
		r.refuse(path, "has %d groups: use two or more, the most expensive one first", len(groups))
	}
	seen := map[string]bool{}
	for n, g := range groups {
		at := fmt.Sprintf("%s[%d]", path, n)
		if seen[g.Name] {
			r.refuse(at+".name", "%q is the name of an earlier group", g.Name)
		}
		if seen[g.Name] = true; g.NodeSelector == nil {
			r.refuse(at+".nodeSelector", "must be there")
		}
		for _, name := range slices.Sorted(maps.Keys(g.KeepThreshold)) {
			r.resources(at+".keepThreshold."+name, []string{name})
		}
		for _, name := range slices.Sorted(maps.Keys(g.RejectThreshold)) {
			r.resources(at+".rejectThreshold."+name, []string{name})
		}
	}
}

// protect writes podProtections as the fields that mean the same.
func (a *DefaultEvictorArgs) protect() {
	for name, evict := range map[string]*bool{
		"PodsWithLocalStorage": &a.EvictLocalStoragePods, "SystemCriticalPods": &a.EvictSystemCriticalPods,
		"FailedBarePods": &a.EvictFailedBarePods,
	} {
		*evict = *evict || slices.Contains(a.PodProtections.DefaultDisabled, name)
	}
	for name, protect := range map[string]*bool{
		"PodsWithPVC": &a.IgnorePVCPods, "PodsWithoutPDB": &a.IgnorePodsWithoutPDB,
	} {
		*protect = *protect || slices.Contains(a.PodProtections.ExtraEnabled, name)
	}
}

// inherit lifts a protection of all moves that a profile lifts for its own, where MigrationController does not have the
// field: a file of the Kubernetes descheduler has it in DefaultEvictor alone.
func (r *reader) inherit() {
	for _, p := range r.Profiles {
		if p.Evictor == nil {
			continue
		}
		for name, pair := range map[string][2]*bool{
			"evictFailedBarePods":     {&r.Migration.EvictFailedBarePods, &p.Evictor.EvictFailedBarePods},
			"evictLocalStoragePods":   {&r.Migration.EvictLocalStoragePods, &p.Evictor.EvictLocalStoragePods},
			"evictSystemCriticalPods": {&r.Migration.EvictSystemCriticalPods, &p.Evictor.EvictSystemCriticalPods},
		} {
			if r.limits == "" || !r.Has(r.limits+"."+name) {
				*pair[0] = *pair[0] || *pair[1]
			}
		}
	}
}
