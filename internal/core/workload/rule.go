package workload

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Default is what becomes of the pods of a kind that nothing else is said about.
type Default string

// Values of Default.
const (
	Grouped Default = "Grouped" // its pods start together
	Never   Default = "Never"   // its pods start one by one, unless the object asks for a gang and has roles
	Parent  Default = "Parent"  // other kinds below it are decided about
)

// Rule says which pods of the objects of one kind start together. Paths of a Role begin at the role, all others at the
// object.
type Rule struct {
	Group    string   `json:"group"` // "" for v1
	Versions []string `json:"versions"`
	Kind     string   `json:"kind"`
	Default  Default  `json:"default"`
	// Covers are GROUP/KIND of objects between this one and its pods, for which this rule counts.
	Covers []string `json:"covers,omitempty"`
	// Suspended are conditions under which there are no pods, Declared those under which the object has gangs of
	// Kubernetes. One that holds is enough, as for all lists of conditions.
	Suspended []Condition `json:"suspended,omitempty"`
	Declared  []Condition `json:"declared,omitempty"`
	// Replicas is how many parts the object has that start apart from each other. Sets are roles that are repeated.
	Replicas *Amount `json:"replicas,omitempty"`
	Sets     *Sets   `json:"sets,omitempty"`
	Roles    []Role  `json:"roles,omitempty"`
	// Together makes one gang of all roles. Without it, each role is a gang.
	Together bool `json:"together,omitempty"`
	// Total is the minimum of all roles. Where it is not the sum of their minima, the roles InFull are gangs with all
	// their pods, and the other roles are one gang with the rest.
	Total  *Amount  `json:"total,omitempty"`
	InFull []string `json:"inFull,omitempty"`
	// Ordered are conditions under which the operator creates the roles one after the other: their gangs do not wait
	// for each other.
	Ordered []Condition `json:"ordered,omitempty"`
	// Restarting are conditions under which a gang needs its minimum again when it has lost pods.
	Restarting []Condition `json:"restarting,omitempty"`
	// Gang is the name of a gang; default: {owner}-{role}. Attempt is how often the pods were made again.
	Gang    Pattern `json:"gang,omitempty"`
	Attempt *Amount `json:"attempt,omitempty"`
	// Pod is the name of a pod; default: {owner}-{role}-{i}. Labels are those that the operator sets.
	Pod    Pattern            `json:"pod,omitempty"`
	Labels map[string]Pattern `json:"labels,omitempty"`
	// Children are objects that the operator creates of this one.
	Children []Child `json:"children,omitempty"`
	// Claims are labels and annotations of pods that name a PodGroup of the operator itself.
	Claims []string `json:"claims,omitempty"`
}

// Role is a set of equal pods, or with a path to several elements one set for each.
type Role struct {
	At Path `json:"at"`
	// Name is that of the role, or NameAt where it is; without both it is the key of the element in lower case.
	Name   string `json:"name,omitempty"`
	NameAt Path   `json:"nameAt,omitzero"`
	// Count units of Size pods each. Min, Max and Count are units. Size and Count are 1 by default. Without MinIf, or
	// where a condition of it holds, Min is the minimum; otherwise Count is. Count is never below Least or above Max,
	// and Size never above MaxSize.
	Count   *Amount     `json:"count,omitempty"`
	Size    *Amount     `json:"size,omitempty"`
	MaxSize *Amount     `json:"maxSize,omitempty"`
	Least   *Amount     `json:"least,omitempty"`
	Max     *Amount     `json:"max,omitempty"`
	Min     *Amount     `json:"min,omitempty"`
	MinIf   []Condition `json:"minIf,omitempty"`
	// Absent are conditions under which the role has no pods. Later are those under which its pods are created after
	// others have started: it is in no gang. OnRequest are those under which it is in no gang unless the object asks
	// for it.
	Absent    []Condition `json:"absent,omitempty"`
	Later     []Condition `json:"later,omitempty"`
	OnRequest []Condition `json:"onRequest,omitempty"`
	// Template is the PodTemplateSpec, or TemplateOr without it. PodSpec is the spec of its pods alone, and Containers
	// a list with at least image and resources. Scheduler is the scheduler's name of pods whose template names none;
	// SchedulerDefault is that of an object without one. PriorityClass is the class of pods whose template names none.
	// Fallback is the template of an object without one.
	Template   Path           `json:"template,omitzero"`
	TemplateOr Path           `json:"templateOr,omitzero"`
	PodSpec    Path           `json:"podSpec,omitzero"`
	Containers Path           `json:"containers,omitzero"`
	Scheduler  Path           `json:"scheduler,omitzero"`
	Fallback   map[string]any `json:"fallback,omitempty"`
	// Claims are templates of PersistentVolumeClaims, of which each pod has its own. SharedClaims are those that the
	// pods with such a mount share.
	Claims       Path               `json:"claims,omitzero"`
	SharedClaims Path               `json:"sharedClaims,omitzero"`
	Pod          Pattern            `json:"pod,omitempty"` // that of the rule by default
	First        int                `json:"first,omitempty"`
	Labels       map[string]Pattern `json:"labels,omitempty"`

	SchedulerDefault string `json:"schedulerDefault,omitempty"`
	PriorityClass    Path   `json:"priorityClass,omitzero"`
}

// Sets are lists of roles that are repeated as a whole: Count times, of which Min start with the other roles. Each
// further one starts on its own.
type Sets struct {
	At     Path    `json:"at"`
	NameAt Path    `json:"nameAt"`
	Roles  Path    `json:"roles"` // a list of names
	Count  *Amount `json:"count,omitempty"`
	Min    *Amount `json:"min,omitempty"`
}

// Child is an object that an operator creates: of a kind with the spec at a path, or, without Kind, the whole object.
type Child struct {
	At         Path   `json:"at"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

// Amount is a whole number from 0 to the largest int32 at a path.
type Amount struct {
	At Path `json:"at,omitzero"`
	// Default counts where the value is absent, and if ZeroIsAbsent where it is 0. Minus is taken off it.
	Default      *int64 `json:"default,omitempty"`
	ZeroIsAbsent bool   `json:"zeroIsAbsent,omitempty"`
	Minus        int64  `json:"minus,omitempty"`
}

// Condition compares the values at a path in one way. Where there is none, only Not and Differs can hold.
type Condition struct {
	At      Path   `json:"at,omitzero"`
	Role    string `json:"role,omitempty"`    // holds for the role of this name
	Equals  any    `json:"equals,omitempty"`  // holds if the value equals
	Not     string `json:"not,omitempty"`     // holds unless the value is this text
	Present bool   `json:"present,omitempty"` // holds if there is a value that is not empty
	Differs Path   `json:"differs,omitzero"`  // holds if the number is not the one at that path; both are 1 by default
	Unless  Path   `json:"unless,omitzero"`   // and it holds only without a value at this path
}

// Pattern is a text with placeholders: {owner}, {role}, {index} of the part, {attempt}, {unit} and {rank} of a pod in
// its unit, and {i} of a pod in its role.
type Pattern string

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func (p Pattern) fill(values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(string(p), func(key string) string {
		if value, ok := values[key]; ok {
			return value
		}
		return key
	})
}

// Name returns GROUP/KIND, or KIND of Kubernetes' first group.
func (r *Rule) Name() string { return strings.TrimPrefix(r.Group+"/"+r.Kind, "/") }

// Problem is what is wrong with a field of a rule.
type Problem struct{ Field, Text string }

// Problems returns what is wrong with a rule.
func (r *Rule) Problems() (all []Problem) {
	add := func(field, format string, args ...any) {
		all = append(all, Problem{field, fmt.Sprintf(format, args...)})
	}
	if r.Kind == "" {
		add("kind", "must name a kind")
	}
	if len(r.Versions) == 0 {
		add("versions", "must list at least one version")
	}
	if !slices.Contains([]Default{Grouped, Never, Parent}, r.Default) {
		add("default", "%q is not allowed: use Grouped, Never, Parent", string(r.Default))
	}
	if r.Default == Grouped && len(r.Roles) == 0 {
		add("roles", "must list at least one role, for default is Grouped")
	}
	for i, name := range r.Covers {
		if _, kind, _ := strings.Cut(name, "/"); kind == "" && strings.Contains(name, "/") || name == "" {
			add(fmt.Sprintf("covers[%d]", i), "%q must be GROUP/KIND, or KIND for v1", name)
		}
	}
	patterns := map[string]Pattern{"gang": r.Gang, "pod": r.Pod}
	for key, pattern := range r.Labels {
		patterns["labels."+key] = pattern
	}
	conditions := map[string][]Condition{
		"suspended": r.Suspended, "declared": r.Declared, "ordered": r.Ordered, "restarting": r.Restarting,
	}
	amounts := map[string]*Amount{"replicas": r.Replicas, "total": r.Total, "attempt": r.Attempt}
	for i := range r.Roles {
		role, at := &r.Roles[i], fmt.Sprintf("roles[%d].", i)
		if role.At.isZero() {
			add(at+"at", "must name the role, or the list of roles")
		}
		patterns[at+"pod"] = role.Pod
		for key, pattern := range role.Labels {
			patterns[at+"labels."+key] = pattern
		}
		maps.Copy(amounts, map[string]*Amount{
			at + "count": role.Count, at + "size": role.Size, at + "maxSize": role.MaxSize, at +
				"least": role.Least, at + "max": role.Max,
			at + "min": role.Min,
		})
		maps.Copy(conditions, map[string][]Condition{
			at + "minIf": role.MinIf, at + "absent": role.Absent, at + "later": role.Later, at +
				"onRequest": role.OnRequest,
		})
		if role.First < 0 {
			add(at+"first", "must be 0 or more, is %d", role.First)
		}
	}
	if s := r.Sets; s != nil {
		for field, path := range map[string]Path{"at": s.At, "nameAt": s.NameAt, "roles": s.Roles} {
			if path.isZero() {
				add("sets."+field, "must be a path")
			}
		}
		amounts["sets.count"], amounts["sets.min"] = s.Count, s.Min
	}
	for i, c := range r.Children {
		if c.At.isZero() || (c.Kind == "") != (c.APIVersion == "") {
			add(fmt.Sprintf("children[%d]", i), "must have at, and apiVersion and kind or none of both")
		}
	}
	for field, list := range conditions {
		for i := range list {
			if text := list[i].problem(); text != "" {
				add(fmt.Sprintf("%s[%d]", field, i), "%s", text)
			}
		}
	}
	for field, amount := range amounts {
		if amount == nil {
			continue
		}
		if d := amount.Default; d != nil && (*d < 0 || *d > math.MaxInt32) {
			add(field+".default", "must be a whole number from 0 to %d, is %d", math.MaxInt32, *d)
		}
		if amount.Minus < 0 || amount.Minus > math.MaxInt32 {
			add(field+".minus", "must be a whole number from 0 to %d, is %d", math.MaxInt32, amount.Minus)
		}
		if amount.At.isZero() && amount.Default == nil {
			add(field, "must have at or default")
		}
	}
	for field, pattern := range patterns {
		for _, key := range placeholder.FindAllString(string(pattern), -1) {
			if !slices.Contains(placeholders, key) {
				add(field, "%s is not a placeholder: use %s", key, strings.Join(placeholders, ", "))
			}
		}
	}
	slices.SortFunc(all, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return all
}

var placeholders = []string{"{owner}", "{role}", "{index}", "{attempt}", "{unit}", "{rank}", "{i}"}

// Table has the rule of each kind and version.
type Table struct{ rules []*Rule }

//go:embed rules.json
var builtin []byte

// Builtin returns the table of the kinds that are known.
func Builtin() Table {
	t, err := readBuiltin()
	if err != nil {
		panic("workload: rules.json: " + err.Error()) // a part of the program
	}
	return t
}

// readBuiltin reads rules.json. A rule that is like another one, by its GROUP/KIND, has the fields of that one which it
// does not list itself.
func readBuiltin() (t Table, err error) {
	var rules []map[string]json.RawMessage
	if err := json.Unmarshal(builtin, &rules); err != nil {
		return t, err
	}
	fields := map[string]map[string]json.RawMessage{} // of the rules so far
	for _, own := range rules {
		rule := maps.Clone(fields[string(own["like"])])
		if rule == nil {
			rule = map[string]json.RawMessage{}
		}
		maps.Copy(rule, own)
		delete(rule, "like")
		text, err := json.Marshal(rule)
		if err != nil {
			return t, err
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		var r Rule
		if err := decoder.Decode(&r); err != nil {
			return t, err
		}
		fields[`"`+r.Name()+`"`] = rule
		t.rules = append(t.rules, &r)
	}
	return t, nil
}

// Rules returns all rules, in the order in which they were given.
func (t Table) Rules() []*Rule { return t.rules }

// With returns the table with more rules. One of them replaces the others of its kind in the versions that it lists.
// The problems are of rules that overlap; each Field begins with the rule's position, as in [1].kind.
func (t Table) With(more []*Rule) (Table, []Problem) {
	var problems []Problem
	for i, r := range more {
		for k, other := range more[:i] {
			if r.Name() != other.Name() {
				continue
			}
			for _, v := range r.Versions {
				if slices.Contains(other.Versions, v) {
					problems = append(problems, Problem{
						fmt.Sprintf("[%d].kind", i), fmt.Sprintf("version %s of %s has the rule [%d] too", v,
							r.Name(), k),
					})
				}
			}
		}
	}
	var out Table
	for _, r := range t.rules {
		kept := *r
		kept.Versions = slices.DeleteFunc(slices.Clone(r.Versions), func(v string) bool {
			return slices.ContainsFunc(more, func(m *Rule) bool {
				return m.Name() == r.Name() && slices.Contains(m.Versions, v)
			})
		})
		if len(kept.Versions) > 0 {
			out.rules = append(out.rules, &kept)
		}
	}
	out.rules = append(out.rules, more...)
	for i, r := range more {
		for _, covered := range r.Covers {
			for _, other := range out.rules {
				if other.Name() == covered && slices.Contains(other.Covers, r.Name()) {
					problems = append(problems, Problem{
						fmt.Sprintf("[%d].covers", i), fmt.Sprintf("%s and %s cover each other", r.Name(), covered),
					})
				}
			}
		}
	}
	return out, problems
}

// Find returns the rule of a kind; nil without one.
func (t Table) Find(group, version, kind string) *Rule {
	for _, r := range t.rules {
		if r.Group == group && r.Kind == kind && slices.Contains(r.Versions, version) {
			return r
		}
	}
	return nil
}
