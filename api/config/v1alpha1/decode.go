package v1alpha1

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/config/strict"
)

// Arguments are those of a plugin.
//
// +kubebuilder:object:generate=false
type Arguments interface {
	runtime.Object
	SetDefaults()
	// Validate returns every field whose value cannot be used. It leaves out what the arguments call themselves.
	Validate() field.ErrorList
}

// arguments is a pointer to the arguments of one plugin.
type arguments[T any] interface {
	*T
	Arguments
	DeepCopyInto(into *T)
}

// Decode reads, completes and validates the arguments that a scheduler hands to the factory of a plugin: nil, a
// *runtime.Unknown with JSON or YAML, or a *T. All problems are reported at once.
func Decode[T any, P arguments[T]](obj runtime.Object) (T, error) {
	kind := reflect.TypeFor[T]().Name()
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
	if err := located(Complete(P(&a)).ToAggregate()); err != nil {
		return none, err
	}
	return a, nil
}

// Complete fills the defaults of arguments and returns every field whose value cannot be used. Arguments may call
// themselves by the name of their type.
func Complete(a Arguments) (errs field.ErrorList) {
	a.SetDefaults()
	t, kind := a.GetObjectKind().(*metav1.TypeMeta), reflect.TypeOf(a).Elem().Name()
	if t.APIVersion != "" {
		errs = append(errs, oneOf(field.NewPath("apiVersion"), t.APIVersion, APIVersion)...)
	}
	if t.Kind != "" {
		errs = append(errs, oneOf(field.NewPath("kind"), t.Kind, kind)...)
	}
	return append(errs, a.Validate()...)
}

// Validate returns every field whose value cannot be used.
func (a *NodeNUMAResourceArgs) Validate() field.ErrorList {
	errs := slices.Concat(
		oneOf(field.NewPath("defaultCPUBindPolicy"), a.DefaultCPUBindPolicy, "FullPCPUs", "SpreadByPCPUs"),
		oneOf(field.NewPath("defaultCPUExclusivePolicy"), a.DefaultCPUExclusivePolicy, "None", "PCPULevel",
			"NUMANodeLevel"),
		oneOf(field.NewPath("defaultNUMATopologyPolicy"), a.DefaultNUMATopologyPolicy, "None", "BestEffort",
			"Restricted", "SingleNUMANode"),
		oneOf(field.NewPath("followAssumedKubelets"), a.FollowAssumedKubelets, FollowRefuse, FollowRankLast,
			FollowTrust),
	)
	for _, s := range []struct {
		path     *field.Path
		strategy *ScoringStrategy
	}{
		{field.NewPath("scoringStrategy"), a.ScoringStrategy},
		{field.NewPath("numaScoringStrategy"), a.NUMAScoringStrategy},
	} {
		if s.strategy != nil {
			errs = append(errs, oneOf(s.path.Child("type"), s.strategy.Type, LeastAllocated, MostAllocated)...)
			errs = append(errs, validateWeights(s.path.Child("resources"), s.strategy.Resources)...)
		}
	}
	if a.MinSharedCPUs != nil && *a.MinSharedCPUs < 0 {
		errs = append(errs, field.Invalid(field.NewPath("minSharedCPUs"), *a.MinSharedCPUs, "must be 0 or more"))
	}
	return errs
}

// oneOf refuses a value that is none of those that are allowed.
func oneOf(path *field.Path, value string, allowed ...string) (errs field.ErrorList) {
	if !slices.Contains(allowed, value) {
		errs = append(errs, field.NotSupported(path, value, allowed))
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
