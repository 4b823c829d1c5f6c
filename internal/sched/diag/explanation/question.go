package explanation

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
)

// ttlOf returns how long after its creation an object is deleted, 0 for never. wrong says why its ttl cannot be read:
// the object is kept then.
func ttlOf(o *v1alpha1.ScheduleExplanation) (ttl time.Duration, wrong string) {
	if o.Spec.TTL == "" {
		return v1alpha1.DefaultTTL, ""
	}
	ttl, err := time.ParseDuration(o.Spec.TTL)
	if err != nil || ttl < 0 {
		return 0, fmt.Sprintf("spec.ttl: must be a Go duration of 0 or more, such as 24h; is %q", o.Spec.TTL)
	}
	return ttl, ""
}

// nameOf returns the name of the pod or gang that an object asks about. wrong says why there is none. The definition of
// the kind refuses most of it; that of Koordinator does not, and none knows the namespace of an object.
func nameOf(o *v1alpha1.ScheduleExplanation) (name, wrong string) {
	namespace, name, ok := strings.Cut(o.Spec.QuestionObjectKey, "/")
	switch {
	case o.Spec.QuestionObjectTemplate != nil:
		return "", "spec.questionObjectTemplate: must not be set: POST /apis/v1/whatif answers about a pod that does " +
			"not exist"
	case !ok || name == "" || strings.ContainsAny(name, "/, "):
		return "", fmt.Sprintf("spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is %.80q",
			o.Spec.QuestionObjectKey)
	case namespace != o.Namespace:
		return "", fmt.Sprintf("spec.questionObjectKey: must be in the namespace of this object, as %s/%s; is %.80q",
			o.Namespace, name, o.Spec.QuestionObjectKey)
	}
	return name, ""
}
