package v1alpha1

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/config/strict"
)

// arguments are those of one plugin.
type arguments[T any] interface {
	*T
	runtime.Object
	DeepCopyInto(into *T)
	SetDefaults()
	Validate() field.ErrorList
}

// Decode reads, completes and validates the arguments that a scheduler hands to the factory of NodeNUMAResource: nil, a
// *runtime.Unknown with JSON or YAML, or a *NodeNUMAResourceArgs. All problems are reported at once.
func Decode(obj runtime.Object) (NodeNUMAResourceArgs, error) {
	return decode[NodeNUMAResourceArgs](obj, Kind)
}

// DecodeElasticQuota is Decode for the plugin ElasticQuota.
func DecodeElasticQuota(obj runtime.Object) (ElasticQuotaArgs, error) {
	return decode[ElasticQuotaArgs](obj, ElasticQuotaKind)
}

func decode[T any, P arguments[T]](obj runtime.Object, kind string) (T, error) {
	var a, none T
	located := func(err error) error { return err }
	switch obj := obj.(type) {
	case nil:
	case P:
		obj.DeepCopyInto(&a)
	case *runtime.Unknown: // JSON is YAML, so one reader serves both content types
		documents, err := strict.Parse(kind, obj.Raw)
		if err == nil && len(documents) > 1 {
			err = fmt.Errorf("%s: has %d documents, want one", kind, len(documents))
		}
		if err != nil {
			return none, err
		}
		for _, d := range documents {
			if err := d.Decode("", P(&a)).Err(); err != nil {
				return none, err
			}
			located = func(err error) error { return d.Locate("", err).Err() }
		}
	default:
		return none, fmt.Errorf("decode %s: got %T", kind, obj)
	}
	P(&a).SetDefaults()
	if err := located(P(&a).Validate().ToAggregate()); err != nil {
		return none, err
	}
	return a, nil
}

// Validate returns every field whose value cannot be used.
func (a *NodeNUMAResourceArgs) Validate() field.ErrorList {
	var errs field.ErrorList
	check := func(path *field.Path, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, field.NotSupported(path, value, allowed))
		}
	}
	errs = append(errs, validateKind(a.TypeMeta, Kind)...)
	check(field.NewPath("defaultCPUBindPolicy"), a.DefaultCPUBindPolicy, "FullPCPUs", "SpreadByPCPUs")
	check(field.NewPath("defaultCPUExclusivePolicy"), a.DefaultCPUExclusivePolicy, "None", "PCPULevel", "NUMANodeLevel")
	check(field.NewPath("defaultNUMATopologyPolicy"), a.DefaultNUMATopologyPolicy, "None", "BestEffort", "Restricted",
		"SingleNUMANode")
	check(field.NewPath("followAssumedKubelets"), a.FollowAssumedKubelets, FollowRefuse, FollowRankLast, FollowTrust)
	for _, s := range []struct {
		path     *field.Path
		strategy *ScoringStrategy
	}{
		{field.NewPath("scoringStrategy"), a.ScoringStrategy},
		{field.NewPath("numaScoringStrategy"), a.NUMAScoringStrategy},
	} {
		if s.strategy != nil {
			check(s.path.Child("type"), s.strategy.Type, LeastAllocated, MostAllocated)
			errs = append(errs, validateWeights(s.path.Child("resources"), s.strategy.Resources)...)
		}
	}
	if a.MinSharedCPUs != nil && *a.MinSharedCPUs < 0 {
		errs = append(errs, field.Invalid(field.NewPath("minSharedCPUs"), *a.MinSharedCPUs, "must be 0 or more"))
	}
	return errs
}

// validateKind accepts what arguments may call themselves.
func validateKind(t metav1.TypeMeta, kind string) field.ErrorList {
	var errs field.ErrorList
	if t.APIVersion != "" && t.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), t.APIVersion, []string{APIVersion}))
	}
	if t.Kind != "" && t.Kind != kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), t.Kind, []string{kind}))
	}
	return errs
}

// validateWeights accepts cpu and memory with equal weights: that is what the plugin's score computes.
func validateWeights(path *field.Path, resources []ResourceWeight) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range resources {
		switch {
		case r.Name != "cpu" && r.Name != "memory":
			errs = append(errs, field.NotSupported(path.Index(i).Child("name"), string(r.Name),
				[]string{"cpu", "memory"}))
		case seen[string(r.Name)]:
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), string(r.Name)))
		case r.Weight < 1 || r.Weight > 100:
			errs = append(errs, field.Invalid(path.Index(i).Child("weight"), r.Weight, "must be 1…100"))
		case r.Weight != resources[0].Weight:
			errs = append(errs, field.Invalid(path.Index(i).Child("weight"), r.Weight,
				"cpu and memory must weigh the same"))
		}
		seen[string(r.Name)] = true
	}
	if len(errs) == 0 && len(resources) == 1 {
		errs = append(errs, field.Required(path, "cpu and memory must both be named"))
	}
	return errs
}
