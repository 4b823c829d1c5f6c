package badinput

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	gangKeys = "gang.scheduling.koordinator.sh/"
	ofGang   = "metadata.annotations[" + gangKeys
)

// badGang is what a pod says of its gang, which no pod may say: the user reads the same of it from the webhook and,
// where that is away, from the scheduler.
type badGang struct {
	name        string
	labels      string // of the pod, in YAML
	annotations string // without the prefix
	says        []string
}

func badGangs() []badGang {
	const whole = "must be a whole number from 1 to 2147483647"
	const wait = "must be a Go duration of at most 290 years, such as 600s, 1h30m or 48h"
	const listed = "must be namespace/name of a gang"
	const name = "must be up to 253 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
	withAnnotation := func(key, value string) string { return fmt.Sprintf("name: g, %s: %q", key, value) }
	const light = "pod-group.scheduling.sigs.k8s.io/"
	return []badGang{
		{"a minimum of 0", "", withAnnotation("min-available", "0"), []string{ofGang + "min-available]", `"0"`, whole}},
		{
			"a minimum below 0",
			"",
			withAnnotation("min-available", "-3"),
			[]string{ofGang + "min-available]", `"-3"`, whole},
		},
		{
			"a minimum in words",
			"",
			withAnnotation("min-available", "two"),
			[]string{ofGang + "min-available]", `"two"`, whole},
		},
		{"an empty minimum", "", withAnnotation("min-available", ""), []string{ofGang + "min-available]", `""`, whole}},
		{
			"half a member",
			"",
			withAnnotation("min-available", "1.5"),
			[]string{ofGang + "min-available]", `"1.5"`, whole},
		},
		{
			"a minimum that overflows", "", withAnnotation("min-available", "99999999999"),
			[]string{ofGang + "min-available]", `"99999999999"`, whole},
		},
		{"a total of 0", "", withAnnotation("total-number", "0"), []string{ofGang + "total-number]", `"0"`, whole}},
		{
			"a total in words",
			"",
			withAnnotation("total-number", "all"),
			[]string{ofGang + "total-number]", `"all"`, whole},
		},
		{
			"a mode that does not exist", "", withAnnotation("mode", "soft"),
			[]string{ofGang + "mode]", `Unsupported value "soft"`, "supported Strict, NonStrict"},
		},
		{
			"an empty mode",
			"",
			withAnnotation("mode", ""),
			[]string{ofGang + "mode]", `""`, "supported Strict, NonStrict"},
		},
		{
			"a match policy that does not exist", "", withAnnotation("match-policy", "always"),
			[]string{
				ofGang + "match-policy]", `"always"`, "supported once-satisfied, only-waiting, waiting-and-running",
			},
		},
		{
			"a match policy that does not exist under its other name", "",
			`name: g, "` + light + `match-policy": once`,
			[]string{"metadata.annotations[" + light + "match-policy]", `"once"`, "supported once-satisfied"},
		},
		{
			"a waiting time without unit", "", withAnnotation("waiting-time", "600"),
			[]string{ofGang + "waiting-time]", `"600"`, wait},
		},
		{
			"a waiting time in words", "", withAnnotation("waiting-time", "ten minutes"),
			[]string{ofGang + "waiting-time]", `"ten minutes"`, wait},
		},
		{
			"a waiting time in days",
			"",
			withAnnotation("waiting-time", "2d"),
			[]string{ofGang + "waiting-time]", `"2d"`, wait},
		},
		{
			"a waiting time of 300 years", "", withAnnotation("waiting-time", "2628000h"),
			[]string{ofGang + "waiting-time]", `"2628000h"`, wait},
		},
		{
			"groups as a bare YAML list",
			"",
			withAnnotation("groups", "- default/g"),
			[]string{ofGang + "groups]", "byte 2"},
		},
		{"groups that are not JSON", "", withAnnotation("groups", "default/g"), []string{ofGang + "groups]", "byte 1"}},
		{
			"groups that are one text", "", withAnnotation("groups", `"default/g"`),
			[]string{ofGang + "groups]", "want a list, got string"},
		},
		{
			"groups that are cut off", "", withAnnotation("groups", `["default/g",`),
			[]string{ofGang + "groups]", "unexpected end of JSON input"},
		},
		{
			"a gang of the group without namespace", "", withAnnotation("groups", `["default/g","h"]`),
			[]string{ofGang + "groups]", `[1]: Invalid value "h"`, listed},
		},
		{
			"a gang of the group with a namespace in capitals", "", withAnnotation("groups", `["Default/g"]`),
			[]string{ofGang + "groups]", `[0]: Invalid value "Default/g"`, listed},
		},
		{
			"a gang of the group with a comma", "", withAnnotation("groups", `["default/g,default/h"]`),
			[]string{ofGang + "groups]", `[0]: Invalid value "default/g,default/h"`, listed},
		},
		{
			"a gang of the group that is null",
			"",
			withAnnotation("groups", "[null]"),
			[]string{ofGang + "groups]", "[0]", listed},
		},
		{
			"a group of 1001 gangs", "", withAnnotation("groups", "["+manyGangs(1001)+"]"),
			[]string{ofGang + "groups]", "lists 1001 gangs: supported up to 1000"},
		},
		{"a gang in another namespace", "", "name: other/g", []string{ofGang + "name]", `"other/g"`, name}},
		{"a gang name that ends in a dot", "", "name: g.", []string{ofGang + "name]", `"g."`, name}},
		{
			"a gang name of 254 letters", "", "name: " + strings.Repeat("g", 254),
			[]string{ofGang + "name]", `"gggggggg`, name},
		},
		{
			"a minimum in words in an old label", light + "name: g, " + light + "min-available: many", "",
			[]string{"metadata.labels[" + light + "min-available]", `"many"`, whole},
		},
	}
}

func manyGangs(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"default/g%d"`, i))
	}
	return strings.Join(all, ",")
}

// gangMember is a pod of one CPU. Annotations are without the prefix where they are not quoted.
func gangMember(namespace, name, labels, annotations string) string {
	var prefixed []string
	if annotations != "" {
		for _, pair := range strings.Split(annotations, ", ") {
			if !strings.HasPrefix(pair, `"`) {
				pair = gangKeys + pair
			}
			prefixed = append(prefixed, pair)
		}
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, labels: {%s}, "+
		"annotations: {%s}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}", namespace,
		name, labels, strings.Join(prefixed, ", "))
}

// gangCases are what pods, PodGroups and people say of gangs.
//
// F15: a minimum that is none, or a PodGroup that is not there, ends in a panic.
func gangCases() (cases []bad) {
	for _, g := range badGangs() {
		cases = append(cases, bad{"webhook: gang: " + g.name, func(t *testing.T) string {
			t.Helper()
			return refused("/validate-pod", gangMember("default", "p", g.labels, g.annotations), "")(t)
		}, g.says}, bad{"scheduler: gang that no webhook saw: " + g.name, func(t *testing.T) string {
			t.Helper()
			return heldBack(t, gangMember(bypassed, "p", g.labels, g.annotations),
				gangMember(bypassed, "q", g.labels, g.annotations))
		}, append([]string{"BadAnnotation"}, g.says...)})
	}
	return slices.Concat(cases, podGroupCases(), oddGangCases())
}

// heldBack lets the scheduler try pods that no webhook saw, of which none may start, beside a gang that must.
func heldBack(t *testing.T, pods ...string) (answer string) {
	t.Helper()
	in := []string{
		"{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: 64, memory: 8Gi, pods: 99}}}",
	}
	for _, name := range []string{"bystander-0", "bystander-1"} {
		in = append(in, gangMember(bypassed, name, "", `name: bystander, min-available: "2"`))
	}
	r, _ := simulated(t, strings.Join(append(in, pods...), "\n---\n"))
	for _, p := range r.Pods {
		if bystander := strings.HasPrefix(p.Name, "bystander"); bystander != (p.State == sim.Scheduled) {
			t.Errorf("%s is %s %v", p.Name, p.State, p.Reasons)
		}
		for _, reason := range p.Reasons {
			answer += p.Name + ": " + reason.Code.String() + ": " + reason.Message + "\n"
		}
	}
	return answer
}

// podGroupOf is a PodGroup of a group and version.
func podGroupOf(version, annotations, spec string) string {
	if annotations != "" {
		annotations = gangKeys + annotations
	}
	return "{apiVersion: " + version + ", kind: PodGroup, metadata: {namespace: ml, name: g, annotations: {" +
		annotations + "}}, spec: {" + spec + "}}"
}

// podGroupCases are PodGroups that no webhook and no schema saw. Where the webhook judges them it refuses them.
func podGroupCases() (cases []bad) {
	const sigs, community = "scheduling.sigs.k8s.io/v1alpha1", "scheduling.x-k8s.io/v1alpha1"
	const native, beta = "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"
	const object = "PodGroup/ml/g: "
	for _, c := range []struct {
		name, manifest string
		says           []string
	}{
		{"a minimum in words", podGroupOf(sigs, "", "minMember: two"), []string{"spec.minMember", `"two"`}},
		{"half a member", podGroupOf(community, "", "minMember: 1.5"), []string{"spec.minMember", "1.5"}},
		{
			"a minimum that overflows", podGroupOf(sigs, "", "minMember: 2147483648"),
			[]string{"spec.minMember", "2147483648"},
		},
		{"resources that are a word", podGroupOf(sigs, "", "minResources: {cpu: many}"), []string{
			"spec.minResources", "quantities must match",
		}},
		{"resources that take seconds to read", podGroupOf(sigs, "", "minResources: {cpu: '1e-9999999'}"), []string{
			"spec.minResources", "out of range",
		}},
		{"resources that are a list", podGroupOf(community, "", "minResources: [cpu]"), []string{
			"spec.minResources", "want an object, got array",
		}},
		{"a waiting time in words", podGroupOf(sigs, "", "scheduleTimeoutSeconds: soon"), []string{
			"spec.scheduleTimeoutSeconds", `"soon"`,
		}},
		{"a waiting time that overflows", podGroupOf(sigs, "", "scheduleTimeoutSeconds: 2147483648"), []string{
			"spec.scheduleTimeoutSeconds", "2147483648",
		}},
		{"a mode that does not exist", podGroupOf(sigs, "mode: soft", "minMember: 2"), []string{
			ofGang + "mode]", `Unsupported value "soft"`, "supported Strict, NonStrict",
		}},
		{
			"groups as a bare YAML list", podGroupOf(community, "groups: '- ml/g'", ""),
			[]string{ofGang + "groups]", "byte 2"},
		},
		{"a waiting time without unit", podGroupOf(sigs, "waiting-time: '30'", ""), []string{
			ofGang + "waiting-time]", `Invalid value "30"`, "must be a Go duration",
		}},
		{"Kubernetes' own without a policy", podGroupOf(native, "", ""), []string{
			"spec.schedulingPolicy", "must have either gang or basic, is absent",
		}},
		{
			"Kubernetes' own with two policies",
			podGroupOf(beta, "", "schedulingPolicy: {basic: {}, gang: {minCount: 2}}"),
			[]string{"spec.schedulingPolicy", "must have either gang or basic"},
		},
		{
			"Kubernetes' own with a policy of a later version", podGroupOf(beta, "", "schedulingPolicy: {elastic: {}}"),
			[]string{"spec.schedulingPolicy", `must have either gang or basic, is {"elastic":{}}`},
		},
		{
			"Kubernetes' own with a minimum of 0", podGroupOf(native, "", "schedulingPolicy: {gang: {minCount: 0}}"),
			[]string{"spec.schedulingPolicy.gang.minCount", "must be a whole number from 1 to 2147483647, is 0"},
		},
		{
			"Kubernetes' own with a minimum in words",
			podGroupOf(beta, "", "schedulingPolicy: {gang: {minCount: all}}"),
			[]string{"spec.schedulingPolicy.gang.minCount", `is "all"`},
		},
		{"Kubernetes' own in a tree without a name", podGroupOf(beta, "",
			"schedulingPolicy: {gang: {minCount: 2}}, parentCompositePodGroupName: [root]"), []string{
			"spec.parentCompositePodGroupName", `must be a name, is ["root"]`,
		}},
		{"Kubernetes' own with an unknown preemption policy", podGroupOf(beta, "",
			"schedulingPolicy: {gang: {minCount: 2}}, preemptionPolicy: Later"), []string{
			"spec.preemptionPolicy", `must be Never or PreemptLowerPriority, is "Later"`,
		}},
		{"Kubernetes' own with an unknown disruption mode", podGroupOf(beta, "",
			"schedulingPolicy: {gang: {minCount: 2}}, disruptionMode: {some: {}}"), []string{
			"spec.disruptionMode", "must be Pod, PodGroup, {single: {}} or {all: {}}",
		}},
	} {
		cases = append(cases, bad{"scheduler: PodGroup that no webhook saw: " + c.name, func(t *testing.T) string {
			t.Helper()
			g := unguardedGangs(t)
			g.group(c.manifest)
			field := "labels: {pod-group.scheduling.sigs.k8s.io: g}"
			if strings.Contains(c.manifest, " "+native) || strings.Contains(c.manifest, " "+beta) {
				field = ""
			}
			for _, name := range []string{"p", "q", "r"} {
				g.pod(name, 0, field, "")
			}
			g.check()
			return g.says("p", "r")
		}, append([]string{"p: BadAnnotation", "r: BadAnnotation", object}, c.says...)})
		if strings.Contains(c.name, "Kubernetes' own") {
			continue // the API server judges it
		}
		cases = append(cases, bad{
			"webhook: PodGroup: " + c.name, refused("/validate-podgroup", c.manifest, ""), c.says,
		})
	}
	return append(cases, bad{
		"webhook: PodGroup: a minimum below 0",
		refused("/validate-podgroup", podGroupOf(sigs, "", "minMember: -1"), ""),
		[]string{"spec.minMember", "must be 0 or more: it is -1"},
	}, bad{
		"webhook: PodGroup: a group without itself",
		refused("/validate-podgroup", podGroupOf(sigs, `groups: '["ml/h"]'`, ""), ""),
		[]string{ofGang + "groups]", "must list its own gang, ml/g, with the others: it lists ml/h"},
	}, bad{
		"webhook: gang: a group without the pod's gang",
		refused("/validate-pod", gangMember("default", "p", "", `name: g, groups: '["default/h"]'`), ""),
		[]string{ofGang + "groups]", "must list its own gang, default/g, with the others: it lists default/h"},
	}, bad{
		"webhook: gang: two gangs",
		refused("/validate-pod", gangMember("default", "p", "scheduling.x-k8s.io/pod-group: h", "name: g"), ""),
		[]string{ofGang + "name]", `names the gang "g"`, `names "h"`, "a pod is in one gang"},
	})
}

// gangs are the gangs of a cluster as a scheduler keeps them, with objects that come past the webhooks. The gang
// bystander, one of whose two members runs, must not notice.
type gangs struct {
	*kube.Gangs
	t      *testing.T
	now    time.Time
	pods   map[string]*corev1.Pod
	groups map[string]*v1alpha1.PodGroup // by group
	// history: what counts depends on what was there before, so that a scheduler that starts now answers otherwise.
	history bool
}

func unguardedGangs(t *testing.T) *gangs {
	t.Helper()
	g := &gangs{
		Gangs: kube.NewGangs(), t: t, now: time.Unix(1_800_000_000, 0), pods: map[string]*corev1.Pod{},
		groups: map[string]*v1alpha1.PodGroup{},
	}
	testkit.Check(t, g.Configure(gang.Settings{}, convert.DefaultGangRules()))
	g.pod("bystander-0", 0, "", `name: bystander, min-available: "2"`)
	g.pod("bystander-1", 0, "", `name: bystander, min-available: "2"`)
	return g
}

// pod puts a pod that is so many seconds old; in a PodGroup of Kubernetes' own where nothing else is said.
func (g *gangs) pod(name string, age int, metadata, annotations string) {
	g.t.Helper()
	p := &corev1.Pod{}
	labels, _ := strings.CutPrefix(metadata, "labels: {")
	text := gangMember("ml", name, strings.TrimSuffix(labels, "}"), annotations)
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		g.t.Fatal(err)
	}
	if metadata+annotations == "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	}
	p.UID, p.CreationTimestamp.Time = types.UID(name), g.now.Add(-time.Duration(age)*time.Second)
	g.pods[name] = p
	g.PutPod(p)
}

func (g *gangs) read(manifest string) *v1alpha1.PodGroup {
	g.t.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		g.t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(manifest, "{apiVersion: "), ",")
	groupVersion, err := schema.ParseGroupVersion(version)
	if err != nil {
		g.t.Fatal(err)
	}
	group, err := kube.ReadPodGroup(groupVersion.WithKind("PodGroup"), text)
	if err != nil {
		g.t.Fatal(err)
	}
	return group
}

func (g *gangs) group(manifest string) {
	g.t.Helper()
	group := g.read(manifest)
	g.groups[group.GroupVersionKind().Group] = group
	g.PutGroup(group)
}

func (g *gangs) ungroup(manifest string) {
	g.t.Helper()
	group := g.read(manifest)
	delete(g.groups, group.GroupVersionKind().Group)
	g.RemoveGroup(group)
}

// tries reserves pods and concludes their round.
func (g *gangs) tries(names ...string) {
	g.t.Helper()
	plan, _, refused := g.Begin(g.pods[names[0]])
	if refused.Code != why.None {
		g.t.Fatalf("%s is refused: %v", names[0], refused)
	}
	tried := names
	if plan != nil {
		tried = plan.Members
	}
	g.Update(func(s *gang.State) gang.Effects { return s.Conclude(tried, names, gang.Failure{}, g.now) })
}

// lose releases what the pod of a UID has reserved.
func (g *gangs) lose(uid string) {
	g.Update(func(s *gang.State) gang.Effects { return s.Lose(uid, why.Finding{}) })
}

// gate returns why the pod of a name may not be tried.
func (g *gangs) gate(name string) gang.Refusal {
	uid := string(g.pods[name].UID)
	return kube.Ask(g.Gangs, func(s *gang.State) gang.Refusal { return s.Gate(uid) })
}

// says describes what becomes of pods.
func (g *gangs) says(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		r := g.gate(name)
		if r.Code == why.None {
			r = kube.Ask(g.Gangs, func(s *gang.State) gang.Refusal { return s.Why(string(g.pods[name].UID)) })
		}
		if r.Code == why.None {
			fmt.Fprintf(&out, "%s may be tried\n", name)
		} else {
			fmt.Fprintf(&out, "%s: %s: %s\n", name, r.Code, r)
		}
	}
	g.Read(func(s *gang.State) {
		r, _ := s.Find("ml/g")
		fmt.Fprintf(&out, "min %d of %d, %s, %s, waits %s", r.Settings.Min, r.Settings.Total, r.Settings.Mode,
			r.Settings.Policy, r.Settings.Wait)
	})
	return out.String()
}

// check is what holds whatever the objects say.
func (g *gangs) check() {
	g.t.Helper()
	if r := g.gate("bystander-1"); r.Code != why.None {
		g.t.Errorf("the bystander notices: %v", r)
	}
	if g.history {
		return
	}
	names := slices.Sorted(maps.Keys(g.pods))
	b := &gangs{Gangs: kube.NewGangs(), t: g.t, now: g.now, pods: g.pods}
	if err := b.Configure(gang.Settings{}, convert.DefaultGangRules()); err != nil {
		g.t.Fatal(err)
	}
	for _, name := range slices.Backward(names) {
		b.PutPod(g.pods[name])
	}
	for _, group := range g.groups {
		b.PutGroup(group)
	}
	if live, again := g.says(names...), b.says(names...); live != again {
		g.t.Errorf("a scheduler that starts now says\n%s, not\n%s", again, live)
	}
}
