package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// mostTrials and fixTime bound a search for fixes; nodesTried is how many groups of equal nodes it changes.
	mostTrials = 50
	fixTime    = time.Second
	nodesTried = 8
	// fixesShown is how many fixes are answered, one of each kind.
	fixesShown = 3
	// fixesKept is how long an answer may be given again, mostKnown bounds the number of answers that are kept.
	fixesKept = 30 * time.Second
	mostKnown = 64
	// mostSteps bounds the amounts among which a search by halves chooses.
	mostSteps = 1024
)

// fixing looks for single changes after which a pod that waits is placed, with the members of its gang if it has one.
// Each is tried by a session of its own.
//
// Every trial starts from the nodes as the session began, so fixes do not build on each other: each one suffices alone.
// What is found holds for the moment of the trial, which VerifiedAt of a fix says.
type fixing struct {
	*session
	key string // of the pod
	// gang is that of the pod, with the members that wait; nil for a pod that starts alone.
	gang *waitingGang
	// pod is the pod as the cluster has it.
	pod *corev1.Pod
	// said explains why the pod waits.
	said *view.Pod
	// found are the fixes so far. runs says how many changes were tried.
	found []view.Fix
	runs  view.FixSearch
	// refused is the first member of a gang that had no node in the last trial.
	refused *corev1.Pod
	// claim replaces that of the pod in the trials; nil for none.
	claim *resourcev1.ResourceClaim
}

// Fixes returns single changes after which the pod would be placed, the cheapest for people first. said explains why
// the pod waits: it names what is worth a try, and every fix was tried. It is Busy while another search is under way.
func (e *Engine) Fixes(ctx context.Context, pod *corev1.Pod, said *view.Pod) ([]view.Fix, *view.FixSearch, error) {
	x := &fixing{key: pod.Namespace + "/" + pod.Name, pod: pod, said: said}
	member, ganged := convert.GangPod(pod)
	if said.State != view.Pending || e.Pod(pod.Namespace, pod.Name) == nil {
		return nil, nil, nil // it has a node, or stands for a Reservation
	}
	if root := said.RootCause; root == nil && !ganged ||
		root != nil && (root.Code.Class() == why.Attention || root.Code.Class() == why.Gate) {
		return nil, nil, nil // it fits, or no other cluster helps
	}
	if ganged {
		if x.gang, x.runs.Note = e.waitingGang(member.Gang, x.key); x.runs.Note != "" {
			return nil, &x.runs, nil
		}
	}
	select {
	case e.fixing <- struct{}{}:
		defer func() { <-e.fixing }()
	default:
		return nil, nil, Busy{}
	}
	var answer knownFixes
	err := e.session(ctx, func(s *session) error {
		x.session = s
		revision, err := x.revision()
		if err != nil {
			return err
		}
		if answer = e.known[x.key]; answer.revision == revision && time.Since(answer.at) < fixesKept {
			return nil
		}
		late, err := s.within(fixTime, x.search)
		x.runs.Exhausted = x.runs.Exhausted || late
		slices.SortStableFunc(x.found, func(a, b view.Fix) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
		x.found = slices.CompactFunc(x.found, func(a, b view.Fix) bool {
			return a.Kind == b.Kind && a.Kind != view.FixRequest // one of each resource
		})
		answer = knownFixes{revision, time.Now(), x.found[:min(len(x.found), fixesShown)], x.runs}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(e.known) == mostKnown {
		clear(e.known)
	}
	e.known[x.key] = answer
	return slices.Clone(answer.fixes), &answer.search, nil
}

// knownFixes are the fixes that a search found. The pages of a console ask for them again and again. An answer is given
// again while revision is the same and fixesKept has not passed.
type knownFixes struct {
	revision uint64
	at       time.Time
	fixes    []view.Fix
	search   view.FixSearch
}

// revision identifies what a search depends on: the nodes with their pods, and what is said of the pod. What neither
// shows, such as the pods of other quotas, is why an answer is kept for fixesKept only.
func (x *fixing) revision() (uint64, error) {
	nodes, err := x.nodes.List()
	if err != nil {
		return 0, err
	}
	sum := fnv.New64a()
	for _, n := range nodes {
		_, _ = fmt.Fprintln(sum, n.Node().Name, n.GetGeneration()) // never fails
	}
	said := *x.said
	said.Queue, said.Data, said.Fixes, said.Search = nil, view.Data{}, nil, nil
	all := []any{said, x.pod.UID, x.pod.ResourceVersion}
	if g := x.gang; g != nil {
		all = append(all, g.pending, g.rule, g.ruled)
		for _, o := range g.group {
			all = append(all, o.Name, o.Min, o.Started, o.Bound)
		}
	}
	text, err := json.Marshal(all)
	_, _ = sum.Write(text)
	return sum.Sum64(), err
}

// rank orders kinds of fixes: what the pod's owner can change comes first, a new node last.
func rank(kind string) int {
	return slices.Index([]string{
		view.FixWait, view.FixRequest, view.FixClaim, view.FixPolicy, view.FixMembers, view.FixGang, view.FixQuota,
		view.FixNode, view.FixEvict, view.FixAddNode,
	}, kind)
}

// search tries what takes one trial before what takes several.
//
// The first trial changes nothing: it shows whether the pod needs a fix at all or only waits, and how many members of a
// gang fit as it is, which later steps build on.
func (x *fixing) search() error {
	node, err := x.try()
	if x.gang != nil && x.gang.rule != "" {
		// Without its rule the members may be anywhere, and that is all that was tried.
		if node != "" {
			x.keep(view.FixGang, fmt.Sprintf("leave out the network rule of gang %s (%s)", x.gang.ruled, x.gang.rule),
				node)
		}
		return err
	}
	if err != nil || node != "" {
		if node != "" {
			x.runs.Note = "tried without a change: schedules on " + node + " at its next attempt"
		}
		return err
	}
	steps := []func() error{x.quota, x.terminating, x.claims, x.nodeChanges, x.policies, x.addNode, x.requests, x.evict}
	if x.gang != nil {
		steps = slices.Insert(steps, 0, x.members)
	}
	for _, step := range steps {
		if err := step(); err != nil || x.runs.Exhausted {
			return err
		}
	}
	return nil
}

// try makes changes in a copy of the cluster and returns the node on which the pod is placed then, "" for none or if
// too few members of its gang are placed.
func (x *fixing) try(changes ...view.Change) (node string, err error) {
	if x.runs.Runs == mostTrials {
		x.runs.Exhausted = true
		return "", nil
	}
	x.runs.Runs++
	x.restart()
	if x.claim != nil {
		x.ChangeClaim(x.claim)
	}
	if x.gang != nil { // its members must fit the quotas together
		if err := x.ownQuotas(); err != nil {
			return "", err
		}
	}
	for i := range changes {
		var wrong *BadQuestion
		if _, err := x.apply(&changes[i]); errors.As(err, &wrong) {
			return "", nil // a change that cannot be made does not help
		} else if err != nil {
			return "", err
		}
	}
	if x.gang != nil {
		return x.tryMembers()
	}
	pod, err := x.pending(x.key)
	if err != nil {
		return "", err
	}
	p, err := x.place(pod, nil)
	if p == nil || err != nil {
		return "", err
	}
	return p.node, nil
}

// offer tries a change, and keeps it as a fix where the pod is placed.
func (x *fixing) offer(kind, message string, changes ...view.Change) (works bool, err error) {
	node, err := x.try(changes...)
	if node == "" || err != nil {
		return false, err
	}
	x.keep(kind, message, node, changes...)
	return true, nil
}

// keep records a fix that was tried.
func (x *fixing) keep(kind, message, node string, changes ...view.Change) {
	now := time.Now()
	tried := "schedules on " + node
	if x.gang != nil {
		if tried += " with its gang"; len(x.gang.group) > 1 {
			tried += " and those that start with it"
		}
	}
	x.found = append(x.found, view.Fix{
		Kind: kind, Message: message + " (tried: " + tried + ")", Changes: changes, Node: node, VerifiedAt: &now,
	})
}

// quota raises the max of the quota that binds by what is missing, which counts what the pod's own gang asks for. Where
// the trial refuses another gang of the group, the max of its quota rises by what that gang lacks, too.
func (x *fixing) quota() error {
	raised := raises{}
	for limit := x.said.Quota; limit != nil; {
		if rises, err := raised.cover(limit); !rises || err != nil {
			return err
		}
		x.refused = nil
		message, changes := raised.changes()
		works, err := x.offer(view.FixQuota, message, changes...)
		if works || err != nil || x.refused == nil || x.runs.Exhausted {
			return err
		}
		limit = x.quotas.Limit(string(x.refused.UID))
	}
	return nil
}

// raises are higher maxima of quotas, by name of the quota and of the resource.
type raises map[string]map[string]raise

// raise is what a maximum was and becomes.
type raise struct {
	from string
	to   resource.Quantity
}

// cover raises a quota to what is used and what the refused pod asks for, with its gang. It reports whether a maximum
// rises by that.
func (r raises) cover(limit *view.QuotaLimit) (rises bool, err error) {
	for _, s := range limit.Shortages {
		used, badUsed := annotation.ParseQuantity(s.Used)
		request, badRequest := annotation.ParseQuantity(s.Request)
		if err := errors.Join(badUsed, badRequest); err != nil {
			return false, fmt.Errorf("%s of quota %s: %w", s.Dimension, limit.Quota, err)
		}
		used.Add(request)
		if r[limit.Quota] == nil {
			r[limit.Quota] = map[string]raise{}
		}
		was, again := r[limit.Quota][s.Dimension]
		if !again {
			was.from = s.Limit
		}
		if !again || used.Cmp(was.to) > 0 {
			r[limit.Quota][s.Dimension], rises = raise{was.from, used}, true
		}
	}
	return rises, nil
}

// changes returns one change for each quota, and their text.
func (r raises) changes() (message string, changes []view.Change) {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		most, amounts := corev1.ResourceList{}, []string{}
		for _, dimension := range slices.Sorted(maps.Keys(r[name])) {
			one := r[name][dimension]
			most[corev1.ResourceName(dimension)] = one.to
			amounts = append(amounts, fmt.Sprintf("%s %s (from %s)", dimension, one.to.String(), one.from))
		}
		texts = append(texts, "max of quota "+name+" to "+strings.Join(amounts, ", "))
		changes = append(changes, view.Change{SetQuota: encode(map[string]any{"name": name, "max": most})})
	}
	return "raise " + strings.Join(texts, " and "), changes
}

// nodeChanges lifts the rule that alone keeps the pod off a node.
func (x *fixing) nodeChanges() error {
	for _, c := range x.said.Candidates[:min(len(x.said.Candidates), nodesTried)] {
		info, err := x.nodes.Get(c.Node)
		if err != nil || info.Node() == nil || len(c.Reasons) != 1 {
			continue
		}
		message, patch := relaxed(x.pod, info.Node(), c.Reasons[0].Code)
		if patch == nil {
			continue
		}
		works, err := x.offer(view.FixNode, message, view.Change{
			PatchNode: &view.Patch{Name: c.Node, Patch: encode(patch)},
		})
		if works || err != nil {
			return err
		}
	}
	return nil
}

// relaxed returns the patch that lifts a rule of a node, nil for none. Only rules count that an administrator sets by a
// patch of the node: its cordon, its taints, labels that say nothing about the machine, and labels that it lacks for
// the pod's topology spread constraints.
func relaxed(pod *corev1.Pod, node *corev1.Node, code why.Code) (message string, patch map[string]any) {
	switch code {
	case why.NodeUnschedulable:
		return "uncordon node " + node.Name, map[string]any{"spec": map[string]any{"unschedulable": nil}}
	case why.TaintToleration:
		kept, names := []corev1.Taint{}, []string{}
		for _, t := range node.Spec.Taints {
			if t.Effect == corev1.TaintEffectPreferNoSchedule ||
				corev1helpers.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &t, true) {
				kept = append(kept, t)
			} else {
				names = append(names, t.ToString())
			}
		}
		return "remove taint " + strings.Join(names, ", ") + " from node " + node.Name,
			map[string]any{"spec": map[string]any{"taints": kept}}
	case why.NodeAffinity:
		labels, names := map[string]any{}, []string{}
		for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
			if value := pod.Spec.NodeSelector[key]; node.Labels[key] != value {
				labels[key], names = value, append(names, key+"="+value)
			}
		}
		if len(labels) > 0 && !factual(labels) {
			return "label node " + node.Name + " with " + strings.Join(names, ", "),
				map[string]any{"metadata": map[string]any{"labels": labels}}
		}
	case why.PodTopologySpread:
		labels, names := map[string]any{}, []string{}
		for _, c := range pod.Spec.TopologySpreadConstraints {
			if _, has := node.Labels[c.TopologyKey]; !has && c.WhenUnsatisfiable == corev1.DoNotSchedule {
				labels[c.TopologyKey], names = node.Name, append(names, c.TopologyKey) // a domain of its own, on trial
			}
		}
		if len(labels) > 0 {
			return "label node " + node.Name + " with " + strings.Join(names, " and ") +
					", which the pod's topologySpreadConstraints require",
				map[string]any{"metadata": map[string]any{"labels": labels}}
		}
	}
	return "", nil
}

// factual reports whether one of the labels says what a machine is or where: that is not to be changed.
func factual(labels map[string]any) bool {
	for key := range labels {
		domain, _, _ := strings.Cut(key, "/")
		if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
			return true
		}
	}
	return false
}

// policies leaves out what the pod requires of its place, one requirement at a time. Members of a gang change alike.
func (x *fixing) policies() error {
	if !x.alike() {
		return nil
	}
	type policy struct {
		message string
		patch   map[string]any
	}
	var all []policy
	annotated := func(message, key string, value any) {
		all = append(all, policy{message, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{key: value},
		}}})
	}
	if text, has := x.pod.Annotations[annotation.ResourceSpecKey]; has {
		if s, _, err := annotation.ParseResourceSpec(text); err == nil && s.RequiredCPUBindPolicy != "" {
			required := s.RequiredCPUBindPolicy
			s.RequiredCPUBindPolicy = ""
			annotated("do not require CPU bind policy "+required, annotation.ResourceSpecKey, annotation.Encode(s))
		}
	}
	if text, has := x.pod.Annotations[annotation.NUMATopologySpecKey]; has {
		if s, _, err := annotation.ParseNUMATopologySpec(text); err == nil && s.NUMATopologyPolicy != "" {
			annotated("do not require NUMA topology policy "+s.NUMATopologyPolicy, annotation.NUMATopologySpecKey, nil)
		}
	}
	for _, key := range []string{annotation.DeviceJointAllocateKey, annotation.DeviceAllocateHintKey} {
		if _, has := x.pod.Annotations[key]; has {
			annotated("leave out annotation "+key, key, nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.pod.Spec.NodeSelector)) {
		all = append(all, policy{
			"leave out node selector " + key + "=" + x.pod.Spec.NodeSelector[key],
			map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{key: nil}}},
		})
	}
	for _, p := range all {
		works, err := x.offer(view.FixPolicy, p.message, x.patch(p.patch)...)
		if works || err != nil {
			return err
		}
	}
	return nil
}

// addNode adds nodes like one of those that refuse the pod, or that take some members of its gang: one, or the fewest
// with which as many members are placed as must.
//
// The number is searched by halves: most nodes suffice, and fewer than least do not. A number found when trials have
// run out is not offered, as a smaller one may do.
func (x *fixing) addNode() error {
	var likes []string
	for _, c := range x.said.Candidates {
		likes = append(likes, c.Node)
	}
	if x.gang != nil {
		likes = append(likes, x.gang.taken...)
	}
	for i, like := range likes {
		if i == nodesTried {
			break
		}
		add := func(n int) view.Change { return view.Change{AddNode: &view.AddNode{Like: like, Count: n}} }
		fits := func(n int) (string, error) { return x.try(add(n)) }
		least, most := 1, min(x.together(), mostNodes)
		node, err := fits(most)
		if err != nil || x.runs.Exhausted {
			return err
		}
		if node == "" {
			continue
		}
		for least < most {
			middle := (least + most) / 2
			if node, err = fits(middle); err != nil || x.runs.Exhausted {
				return err // it may not be the smallest change
			}
			if node != "" {
				most = middle
			} else {
				least = middle + 1
			}
		}
		message := "add 1 node like " + like
		if least > 1 {
			message = fmt.Sprintf("add %d nodes like %s", least, like)
		}
		_, err = x.offer(view.FixAddNode, message, add(least))
		return err
	}
	return nil
}

// requests changes one amount of one container. Of the containers that request a resource, the one that requests most
// is tried first, and the others only where it does not help. An amount that must be a multiple is first rounded up.
// Else the natural amounts are tried, and between the largest one that fits and the next one that does not, a larger
// one is searched by halves. What was not tried may fit as well: amounts that fit can alternate with some that do not.
//
// Invariant of the search: low steps fit, on the node on, and high+1 do not, or are what the pod asks already.
func (x *fixing) requests() error {
	if !x.alike() {
		return nil
	}
	helped := map[corev1.ResourceName]bool{}
	for _, a := range x.amounts() {
		if helped[a.names[0]] {
			continue
		}
		refused := []int64{a.asked} // those that were tried and do not fit
		fits := func(steps int64) (string, error) {
			node, err := x.try(x.request(a, steps*a.step)...)
			if node == "" {
				refused = append(refused, steps*a.step)
			}
			return node, err
		}
		offer := func(steps int64, node string) {
			n := steps * a.step
			helped[a.names[0]] = true
			x.keep(view.FixRequest, fmt.Sprintf("request %s %s instead of %s in container %s", a.title(), a.text(n),
				a.text(a.asked), a.container.Name), node, x.request(a, n)...)
			if others := a.larger(refused, n); others != "" {
				last := &x.found[len(x.found)-1].Message
				*last = strings.TrimSuffix(*last, ")") + ", not with " + others + ")"
			}
		}
		if up := (a.asked + a.step - 1) / a.step; up*a.step != a.asked {
			node, err := fits(up)
			if err != nil {
				return err
			}
			if node != "" {
				offer(up, node)
				return nil
			}
		}
		low, high := int64(1), (a.asked-1)/a.step // the answer is in between
		if high < low {
			continue
		}
		// If even the smallest amount does not fit, this resource is not the reason.
		on, err := fits(low)
		if err != nil || x.runs.Exhausted {
			return err
		}
		if on == "" {
			continue
		}
		for _, n := range x.natural(a) {
			node, err := fits(n)
			if err != nil {
				return err
			}
			if node != "" {
				low, on = n, node
				break
			}
			high = n - 1
		}
		for low < high && !x.runs.Exhausted {
			middle := (low + high + 1) / 2
			node, err := fits(middle)
			if err != nil {
				return err
			}
			if node != "" {
				low, on = middle, node
			} else {
				high = middle - 1
			}
		}
		if x.runs.Exhausted {
			return nil // it may not be the smallest change
		}
		offer(low, on)
	}
	return nil
}

// larger names the amounts of a list that are larger than n and at most what is asked, the smallest first; "" for none.
func (a amount) larger(list []int64, n int64) string {
	const named = 4
	list = slices.DeleteFunc(slices.Clone(list), func(r int64) bool { return r <= n || r > a.asked })
	slices.Sort(list)
	var texts []string
	for _, r := range slices.Compact(list) {
		texts = append(texts, a.text(r))
	}
	if more := len(texts) - named; more > 0 {
		texts = append(texts[:named], view.Count(more, "larger amount"))
	}
	last := len(texts) - 1
	if last < 1 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// natural returns smaller amounts that often fit although those beside them do not, in steps, the largest first: the
// next one, whole CPUs, and what whole cores, NUMA nodes and sockets of the nodes that refuse the pod have.
func (x *fixing) natural(a amount) (steps []int64) {
	units := []int64{a.step}
	if a.milli {
		units = append(units, 1000)
	}
	for _, c := range x.said.Candidates[:min(len(x.said.Candidates), nodesTried)] {
		v := x.trial.Account(c.Node)
		if v == nil || v.Facts().Machine == nil || !a.milli && a.names[0] != corev1.ResourceMemory {
			continue
		}
		m, all := v.Facts().Machine, int64(0)
		if a.milli {
			all = 1000 * int64(m.NumCPUs())
			units = append(units, 1000*int64(m.ThreadsPerCore()))
		} else {
			for n := range m.NumNUMA() {
				all += m.MemoryBytes(topo.NUMA(n))
			}
		}
		units = append(units, all/int64(m.NumNUMA()), all/int64(m.NumSockets()))
	}
	for _, unit := range units {
		if n := (a.asked - 1) / max(unit, 1) * unit / a.step; n > 1 {
			steps = append(steps, n)
		}
	}
	slices.SortFunc(steps, func(a, b int64) int { return cmp.Compare(b, a) })
	return slices.Compact(steps)
}

// amount is what one container requests of a resource, or of resources that must be equal.
type amount struct {
	container *corev1.Container
	names     []corev1.ResourceName
	// asked is what it requests, in milli-CPUs if milli is set, else in the resource's own unit.
	asked int64
	step  int64 // between the amounts that are tried
	milli bool
}

// quantity returns n as a quantity in the format that the container uses.
func (a amount) quantity(n int64) resource.Quantity {
	format := a.container.Resources.Requests[a.names[0]].Format
	if a.milli {
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n, format)
}

// text writes n for people.
func (a amount) text(n int64) string {
	q := a.quantity(n)
	return q.String()
}

// title names the resources for people.
func (a amount) title() string {
	var names []string
	for _, name := range a.names {
		names = append(names, string(name))
	}
	return strings.Join(names, " and ")
}

// amounts returns what is worth a try: CPUs, memory, then the others by name; of each resource the container that
// requests most comes first.
func (x *fixing) amounts() (all []amount) {
	requesting := map[corev1.ResourceName][]*corev1.Container{}
	for i := range x.pod.Spec.Containers {
		c := &x.pod.Spec.Containers[i]
		for name := range c.Resources.Requests {
			requesting[name] = append(requesting[name], c)
		}
	}
	order := slices.SortedFunc(maps.Keys(requesting), func(a, b corev1.ResourceName) int {
		first := []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU}
		return cmp.Or(cmp.Compare(slices.Index(first, b), slices.Index(first, a)), cmp.Compare(a, b))
	})
	for _, name := range order {
		slices.SortStableFunc(requesting[name], func(a, b *corev1.Container) int {
			q := b.Resources.Requests[name]
			return q.Cmp(a.Resources.Requests[name])
		})
		for _, c := range requesting[name] {
			if a := x.amount(c, name); a.asked > 0 {
				all = append(all, a)
			}
		}
	}
	return all
}

// amount returns what a container requests of a resource; nothing for one that is changed beside another resource.
func (x *fixing) amount(c *corev1.Container, name corev1.ResourceName) amount {
	q := c.Resources.Requests[name]
	a := amount{container: c, names: []corev1.ResourceName{name}, asked: q.Value(), step: 1}
	_, core := c.Resources.Requests[annotation.ResourceGPUCore]
	switch {
	case name == corev1.ResourceCPU:
		a.asked, a.milli, a.step = q.MilliValue(), true, x.cpuStep(q.MilliValue())
	case name == annotation.ResourceGPUMemoryRatio && core:
		return amount{}
	case name == annotation.ResourceGPUCore:
		r, has := c.Resources.Requests[annotation.ResourceGPUMemoryRatio]
		if has && r.Value() == a.asked {
			a.names = append(a.names, annotation.ResourceGPUMemoryRatio)
		}
		if a.step = 10; a.asked > 100 {
			a.step = 100 // several GPUs are whole ones
		}
	case q.Format == resource.BinarySI && a.asked >= 1<<20:
		a.step = 1 << 20
	}
	for a.asked/a.step > mostSteps {
		a.step *= 2
	}
	return a
}

// cpuStep is that of milli-CPU: whole cores where those are what the pod lacks, whole CPUs for pods that have them for
// themselves, a tenth of one for others. A smaller step would try amounts that the pod cannot have: a request that is
// no multiple is refused by itself.
func (x *fixing) cpuStep(asked int64) int64 {
	for _, o := range x.said.Obstacles {
		if threads, known := o.Params["threadsPerCore"].(int64); known && threads > 1 {
			return 1000 * threads
		}
		if o.Code == why.CPURequestNotInteger {
			return 1000
		}
	}
	switch {
	case asked%1000 == 0 && x.pins():
		return 1000
	case asked <= 100:
		return 10
	}
	return 100
}

// pins reports whether whole CPUs of the pod are exclusive: Tenon chooses them, or the kubelet of a node that refuses
// the pod would. A fraction would put the pod on shared CPUs.
func (x *fixing) pins() bool {
	class := describe.Class(x.pod)
	if class.Class == qos.LSE || class.Class == qos.LSR {
		return true
	}
	return class.Kube == qos.Guaranteed && slices.ContainsFunc(x.said.Candidates, func(c view.Candidate) bool {
		v := x.trial.Account(c.Node)
		return v != nil && v.Facts().Model.Config.CPU.Static
	})
}

// request is the change of an amount. A limit that was equal, or would be too low, follows.
func (x *fixing) request(a amount, n int64) []view.Change {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, name := range a.names {
		q := a.quantity(n)
		requests[name] = q
		if limit, has := a.container.Resources.Limits[name]; has &&
			(limit.Cmp(a.container.Resources.Requests[name]) == 0 || limit.Cmp(q) < 0) {
			limits[name] = q
		}
	}
	resources := map[string]any{"requests": requests}
	if len(limits) > 0 {
		resources["limits"] = limits
	}
	return x.patch(map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": a.container.Name, "resources": resources},
	}}})
}

// patch is the change of the pod, and of the members of its gang that wait, by a merge patch.
func (x *fixing) patch(patch map[string]any) (changes []view.Change) {
	keys := []string{x.key}
	if x.gang != nil {
		keys = x.gang.pending
	}
	for _, key := range keys {
		changes = append(changes, view.Change{PatchPod: &view.Patch{Name: key, Patch: encode(patch)}})
	}
	return changes
}

// encode writes what always encodes: maps with names, amounts and texts.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("whatif: encode a change: %v", err))
	}
	return text
}
