package v1alpha1

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/nearest"
)

// Decode reads, completes and validates the arguments that a scheduler hands to the plugin's factory: nil, a
// *runtime.Unknown with JSON or YAML, or a *NodeNUMAResourceArgs. All problems are reported at once.
func Decode(obj runtime.Object) (NodeNUMAResourceArgs, error) {
	var a NodeNUMAResourceArgs
	switch obj := obj.(type) {
	case nil:
	case *NodeNUMAResourceArgs:
		obj.DeepCopyInto(&a)
	case *runtime.Unknown:
		if err := decodeStrict(obj.Raw, &a); err != nil {
			return NodeNUMAResourceArgs{}, fmt.Errorf("decode %s: %w", Kind, err)
		}
	default:
		return NodeNUMAResourceArgs{}, fmt.Errorf("decode %s: got %T", Kind, obj)
	}
	a.SetDefaults()
	if err := a.Validate().ToAggregate(); err != nil {
		return NodeNUMAResourceArgs{}, fmt.Errorf("%s: %w", Kind, errors.Join(err.Errors()...))
	}
	return a, nil
}

// decodeStrict reads JSON or YAML: JSON is YAML, so one reader serves both content types.
func decodeStrict(text []byte, into *NodeNUMAResourceArgs) error {
	doc, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(doc, into)
	if err != nil {
		return err
	}
	problems := make([]error, len(strict))
	for i, e := range strict {
		problems[i] = e
		field := json.FieldError(nil)
		if errors.As(e, &field) && strings.HasPrefix(e.Error(), "unknown field") {
			problems[i] = fmt.Errorf("%s: %s", field.FieldPath(),
				nearest.UnknownField(reflect.TypeOf(into), field.FieldPath()))
		}
	}
	return errors.Join(problems...)
}

// Validate returns every field whose value cannot be used.
func (a *NodeNUMAResourceArgs) Validate() field.ErrorList {
	var errs field.ErrorList
	check := func(path *field.Path, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, field.NotSupported(path, value, allowed))
		}
	}
	if a.APIVersion != "" {
		check(field.NewPath("apiVersion"), a.APIVersion, APIVersion)
	}
	if a.Kind != "" {
		check(field.NewPath("kind"), a.Kind, Kind)
	}
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
