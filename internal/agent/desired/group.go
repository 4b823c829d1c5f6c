package desired

import (
	"path"
	"strings"
)

const (
	bestEffort  = "besteffort"
	sliceSuffix = ".slice"
)

// IsBestEffort reports whether the group of a pod is below that which the kubelet makes for BestEffort pods, with
// either cgroup driver.
func IsBestEffort(podGroup string) bool {
	class := strings.TrimSuffix(path.Base(path.Dir(podGroup)), sliceSuffix)
	return class == bestEffort || strings.HasSuffix(class, "-"+bestEffort)
}
