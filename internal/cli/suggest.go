package cli

import (
	"fmt"
	"slices"
	"strings"
)

// suggest returns ", did you mean …?" for the name that is nearest to the given one, "" when none is near or two are
// equally near.
func suggest(name string, known []string) string {
	best, distance, tied := "", 3, false
	for _, k := range known {
		switch d := editDistance(strings.ToLower(name), strings.ToLower(k)); {
		case d < distance:
			best, distance, tied = k, d, false
		case d == distance:
			tied = true
		}
	}
	if best == "" || tied {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// editDistance counts insertions, deletions, substitutions and transpositions of neighbours.
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			best := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				best = min(best, rows[i-2][j-2]+1)
			}
			rows[i][j] = best
		}
	}
	return rows[len(x)][len(y)]
}

// named reads NAME, KIND/NAME or KIND NAME, where kind is the only one that is allowed; "" for no arguments.
func named(args []string, kind string) (string, error) {
	given, name := kind, ""
	switch len(args) {
	case 0:
		return "", nil
	case 1:
		name = args[0]
		if k, n, ok := strings.Cut(args[0], "/"); ok {
			given, name = k, n
		}
	case 2:
		given, name = args[0], args[1]
	}
	if len(args) > 2 || len(args) == 2 && !isKind(given, kind) {
		return "", usagef("too many arguments: give one %s, or none for all", kind)
	}
	if !isKind(given, kind) {
		return "", usagef("unknown kind in %q: use %s", args[0], kind)
	}
	if name == "" {
		return "", usagef("%q names no %s", strings.Join(args, " "), kind)
	}
	return name, nil
}

func isKind(text, kind string) bool { return singular(text, []string{kind}) != "" }

// singular maps what kubectl accepts (pod, pods, po) to the kind, "" when it is none of kinds.
func singular(kind string, kinds []string) string {
	kind = strings.ToLower(kind)
	if full, ok := map[string]string{"po": "pod", "no": "node"}[kind]; ok {
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
