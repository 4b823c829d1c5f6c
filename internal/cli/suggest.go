package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/nearest"
)

// suggest returns ", did you mean …?" for the known name closest to the given one, "" when none is similar or two are
// equally close.
func suggest(name string, known []string) string {
	best := nearest.Word(name, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// named reads NAME, KIND/NAME or KIND NAME, where kinds are those that are allowed and NAME alone is of the first; ""
// for no arguments.
func named(args []string, kinds ...string) (kind, name string, err error) {
	given := kinds[0]
	switch len(args) {
	case 0:
		return given, "", nil
	case 1:
		name = args[0]
		if k, n, ok := strings.Cut(args[0], "/"); ok {
			given, name = k, n
		}
	case 2:
		given, name = args[0], args[1]
	}
	kind = singular(given, kinds)
	switch {
	case len(args) > 2 || len(args) == 2 && kind == "":
		return "", "", usagef("too many arguments: give one %s, or none for all", kinds[0])
	case kind == "":
		return "", "", usagef("unknown kind in %q: use %s", args[0], strings.Join(kinds, ", "))
	case name == "":
		return "", "", usagef("%q names no %s", strings.Join(args, " "), kind)
	}
	return kind, name, nil
}

// singular maps what kubectl accepts (pod, pods, po) to the kind, "" when it is none of kinds.
func singular(kind string, kinds []string) string {
	kind = strings.ToLower(kind)
	if full, ok := map[string]string{
		"po": "pod", "no": "node", "deploy": "deployment", "rs": "replicaset", "sts": "statefulset", "ds": "daemonset",
		"podgroup": "gang", "elasticquota": "quota",
	}[kind]; ok {
		kind = full
	}
	if slices.Contains(kinds, kind) {
		return kind
	}
	if kind = strings.TrimSuffix(kind, "s"); slices.Contains(kinds, kind) {
		return kind
	}
	return ""
}
