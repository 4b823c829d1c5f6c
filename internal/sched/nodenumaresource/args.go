package nodenumaresource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// decodeArgs reads the plugin's pluginConfig; unknown fields and values are refused.
func decodeArgs(raw runtime.Object) (convert.Args, error) {
	args, err := v1alpha1.Decode(raw)
	if err != nil {
		return convert.Args{}, fmt.Errorf("arguments of %s: %w", Name, err)
	}
	return convert.NewArgs(args), nil
}
