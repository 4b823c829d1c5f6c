package annotation

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of a Pod that name its gang. A pod's spec.schedulingGroup comes before them, then the first one found counts.
const (
	// PodGroup names a PodGroup of scheduling.sigs.k8s.io.
	PodGroup = "pod-group.scheduling.sigs.k8s.io"
	// CommunityPodGroup names a PodGroup of scheduling.x-k8s.io.
	CommunityPodGroup = "scheduling.x-k8s.io/pod-group"
	// LightweightGang names a gang without an object.
	LightweightGang = "pod-group.scheduling.sigs.k8s.io/name"
	// LightweightMinAvailable is how many members the gang needs, read where the annotation min-available is absent.
	LightweightMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
)

// Annotations of a Pod that name its gang, read where no label does.
const (
	// GangName names a gang without an object: up to 253 letters, digits, '-', '_' and '.'.
	GangName = "gang.scheduling.koordinator.sh/name"
)

// Annotations of a Pod or a PodGroup that describe the gang. Those of its oldest pod come before those of its PodGroup,
// and these before its spec.
const (
	// GangMinAvailable is how many members must start together, from 1. Default: total-number; 1 without it.
	GangMinAvailable = "gang.scheduling.koordinator.sh/min-available"
	// GangTotalNumber is how many members there will be, from 1; one below the minimum is taken as the minimum.
	GangTotalNumber = "gang.scheduling.koordinator.sh/total-number"
	// GangMode is Strict or NonStrict: what becomes of reservations when the gang cannot be completed. Default: Strict.
	GangMode = "gang.scheduling.koordinator.sh/mode"
	// GangGroups holds Names: namespace/name of each gang that starts together with this one. Default: this one alone.
	GangGroups = "gang.scheduling.koordinator.sh/groups"
	// GangMatchPolicy is once-satisfied, only-waiting or waiting-and-running: which members count towards the minimum.
	// Default: once-satisfied.
	GangMatchPolicy = "gang.scheduling.koordinator.sh/match-policy"
	// GangMatchPolicyAlias is read where GangMatchPolicy is absent.
	GangMatchPolicyAlias = "pod-group.scheduling.sigs.k8s.io/match-policy"
	// GangWaitingTime is how long reserved members wait for the others, as a Go duration. Default: 600s, also for one
	// that is not above 0.
	GangWaitingTime = "gang.scheduling.koordinator.sh/waiting-time"
	// GangInterrupted is Keep or Evict: what becomes of the bound members of a Strict gang if a scheduler stopped while
	// it bound them, and the others do not fit within GangWaitingTime. Default: the argument interruptedGangs, Keep.
	GangInterrupted = "tenon.sh/gang-interrupted"
)

// Annotations of a Pod that the scheduler writes. Nothing of Tenon reads them.
const (
	// GangTimeout is "true" for a pod that waited for its gang until GangWaitingTime was over.
	GangTimeout = "gang.scheduling.koordinator.sh/timeout"
	// BoundGangGroup lists the gangs that start together with the pod's: namespace/name, sorted, between commas.
	BoundGangGroup = "internal.scheduling.koordinator.sh/bind-gang-group-id"
	// BoundGangMembers is how many pods of these gangs were known when the pod was bound.
	BoundGangMembers = "internal.scheduling.koordinator.sh/bind-gang-member-count"
)

// What an object above pods, or its pod template, says about the gangs of its kind.
const (
	// GangWish is an annotation of the object or template: how many of its pods start together, from 1, or all.
	GangWish = "tenon.sh/gang-min"
	// GangLabel is a label of the object, of pods and of Namespaces: off prevents gangs by the rules of kinds.
	GangLabel = "tenon.sh/gang"
	// GangRule is an annotation of a PodGroup, and of the pods that got its name: the rule that it was made by.
	GangRule = "tenon.sh/gang-rule"
	// GangsLabel is a label of Namespaces, with the values GangsAuto and GangsRequired.
	GangsLabel = "tenon.sh/gangs"
)

// What Kueue says of plain pods that it admits together, as one group.
const (
	// KueueGroup is a label of the pods: the name of the group. Pods that name no other gang are one of this name.
	KueueGroup = "kueue.x-k8s.io/pod-group-name"
	// KueueGroupTotal is an annotation of the pods: how many the group has.
	KueueGroupTotal = "kueue.x-k8s.io/pod-group-total-count"
	// KueueGroupServing and KueueGroupFast are annotations: with the value true, the pods start one by one.
	KueueGroupServing = "kueue.x-k8s.io/pod-group-serving"
	KueueGroupFast    = "kueue.x-k8s.io/pod-group-fast-admission"
)

// Values of GangsLabel.
const (
	// GangsAuto asks for gangs by the rules of kinds.
	GangsAuto = "auto"
	// GangsRequired is GangsAuto, and refuses pods whose gang cannot be found out.
	GangsRequired = "required"
)

// Values of GangMode.
const (
	GangStrict    = "Strict"
	GangNonStrict = "NonStrict"
)

// Values of GangInterrupted.
const (
	GangKeepBound  = "Keep"
	GangEvictBound = "Evict"
)

// Values of GangMatchPolicy.
const (
	GangOnceSatisfied     = "once-satisfied"
	GangOnlyWaiting       = "only-waiting"
	GangWaitingAndRunning = "waiting-and-running"
)

// maxGangGroup is the most gangs that GangGroups may list. Each change of a gang costs work for all gangs of its group.
const maxGangGroup = 1000

// gangName matches what a label and the name of an object can hold, so that every gang can be listed.
var gangName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

const gangNameRule = "must be up to 253 letters, digits, '-', '_' and '.', with a letter or digit at both ends"

// ParseGangName reads the name of a gang.
func ParseGangName(text string) (string, []Warning, error) {
	if !isGangName(text) {
		return "", nil, invalid(text, gangNameRule)
	}
	return text, nil, nil
}

func isGangName(text string) bool {
	return len(text) <= validation.DNS1123SubdomainMaxLength && gangName.MatchString(text)
}

// ParseMembers reads a number of members.
func ParseMembers(text string) (int, []Warning, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, nil, invalid(text, fmt.Sprintf("must be a whole number from 1 to %d", math.MaxInt32))
	}
	return int(n), nil, nil
}

// ParseMemberIndex reads the rank of a member.
func ParseMemberIndex(text string) (int, []Warning, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, nil, invalid(text, fmt.Sprintf("must be a whole number from 0 to %d", math.MaxInt32))
	}
	return int(n), nil, nil
}

// ParseGangMode reads GangStrict or GangNonStrict.
func ParseGangMode(text string) (string, []Warning, error) {
	return word(text, GangStrict, GangNonStrict)
}

// ParseGangInterrupted reads GangKeepBound or GangEvictBound.
func ParseGangInterrupted(text string) (string, []Warning, error) {
	return word(text, GangKeepBound, GangEvictBound)
}

// ParseMatchPolicy reads GangOnceSatisfied, GangOnlyWaiting or GangWaitingAndRunning.
func ParseMatchPolicy(text string) (string, []Warning, error) {
	return word(text, GangOnceSatisfied, GangOnlyWaiting, GangWaitingAndRunning)
}

// ParseWaitingTime reads a duration; one below 0 is 0.
func ParseWaitingTime(text string) (time.Duration, []Warning, error) {
	wait, err := time.ParseDuration(text)
	if err != nil {
		return 0, nil, invalid(text, "must be a Go duration of at most 290 years, such as 600s, 1h30m or 48h")
	}
	return max(wait, 0), nil, nil
}

// ParseGangGroups reads Names that are namespace/name of gangs.
func ParseGangGroups(text string) (Names, []Warning, error) {
	names, warnings, err := parseNames(text, func(gang string) []string {
		namespace, name, _ := strings.Cut(gang, "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || !isGangName(name) {
			return []string{"must be namespace/name of a gang; the name " + gangNameRule}
		}
		return nil
	})
	if len(names) > maxGangGroup {
		return nil, nil, &Error{Text: fmt.Sprintf("lists %d gangs: supported up to %d", len(names), maxGangGroup)}
	}
	return names, warnings, err
}

// GangNetworkTopology holds a NetworkTopologySpec: in which domains of the network the pods of a gang are.
const GangNetworkTopology = "gang.scheduling.koordinator.sh/network-topology-spec"

// GangNetworkTopologyIndex is the rank of a Pod in its gang, from 0: members that follow each other get neighboring
// places where GangNetworkTopology says something.
const GangNetworkTopologyIndex = "gang.scheduling.koordinator.sh/network-topology-index"

// Strategies of a GatherRule.
const (
	MustGather   = "MustGather"
	PreferGather = "PreferGather"
)

const (
	maxGatherRules = 8
	maxLayerName   = 253
	maxPodMultiple = 1000
)

// NetworkTopologySpec says in which domains of the network the pods of a gang are.
type NetworkTopologySpec struct {
	GatherStrategy []GatherRule `json:"gatherStrategy,omitempty"`
}

// GatherRule is about one layer of the ClusterNetworkTopology.
type GatherRule struct {
	Layer string `json:"layer"`
	// Strategy is MustGather: all pods are in one domain of the layer; or PreferGather: in as few as possible.
	Strategy string `json:"strategy"`
	// PodCountMultiple divides the number of pods in each domain of the layer, up to 1000; 0 and 1 ask nothing. At
	// most one rule may say it.
	PodCountMultiple int `json:"podCountMultiple,omitempty"`
}

// ParseNetworkTopologySpec reads a NetworkTopologySpec.
func ParseNetworkTopologySpec(text string) (NetworkTopologySpec, []Warning, error) {
	return read(text, func(r *reader, s *NetworkTopologySpec) {
		const list = "gatherStrategy"
		if len(s.GatherStrategy) > maxGatherRules {
			r.refuse(list, Error{Text: fmt.Sprintf("lists %d layers: supported up to %d", len(s.GatherStrategy),
				maxGatherRules)})
		}
		multiples := 0
		for i := range s.GatherStrategy {
			g := &s.GatherStrategy[i]
			field := fmt.Sprintf("%s.%d", list, i)
			earlier := s.GatherStrategy[:i]
			switch {
			case g.Layer == "" || len(g.Layer) > maxLayerName:
				r.refuse(field+".layer", Error{Text: fmt.Sprintf(
					"must name a layer of the ClusterNetworkTopology, with up to %d letters", maxLayerName)})
			case slices.ContainsFunc(earlier, func(o GatherRule) bool { return o.Layer == g.Layer }):
				r.refuse(field+".layer", Error{Text: fmt.Sprintf("layer %.64q is listed twice", g.Layer)})
			case g.Strategy == "":
				r.refuse(field+".strategy", Error{Text: "must be one of MustGather, PreferGather"})
			}
			r.word(field+".strategy", &g.Strategy, []string{MustGather, PreferGather})
			if g.PodCountMultiple < 0 || g.PodCountMultiple > maxPodMultiple {
				r.refuse(field+".podCountMultiple", Error{Text: fmt.Sprintf("must be from 0 to %d", maxPodMultiple)})
			}
			if g.PodCountMultiple > 1 {
				multiples++
			}
			if multiples > 1 {
				r.refuse(field+".podCountMultiple", Error{Text: "only one rule may say it"})
			}
		}
	})
}
