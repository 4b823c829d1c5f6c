package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/view"
)

// mostRoom bounds the pods that are counted on one node, for pods that ask for nothing.
const mostRoom = 10_000

// nodeByNode are the filters whose answer about a node depends on that node and on what was there before the count.
var nodeByNode = sets.New(names.NodeUnschedulable, names.NodeName, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.TaintToleration, names.NodeVolumeLimits, names.NodeDeclaredFeatures,
	"NodeNUMAResource", "DeviceShare", "LoadAwareScheduling", "ElasticQuota", "Coscheduling")

// ofKind are those of them that read nothing of a node that takes a first pod but what kind compares.
var ofKind = nodeByNode.Difference(sets.New(names.NodeVolumeLimits, "LoadAwareScheduling"))

// count is a count of pods that fit. Each node has its own entry in what follows all.
//
// It puts pods on copies of nodes and on the trial, never on nodes of the session, except in repeat. fill writes the
// entries of one node alone, so that goroutines that fill different nodes share nothing that changes but the trial.
type count struct {
	*session
	// f is the profile of the pod that is counted.
	f    framework.Framework
	pod  *corev1.Pod
	own  []*resourcev1.ResourceClaim // of the pod alone: each counted one has as many
	cs   fwk.CycleState              // after PreFilter
	with fwk.PodInfo                 // of the pod
	// all are the nodes that are counted. An element is replaced by a copy once a pod is put on the node.
	all []fwk.NodeInfo
	// allowed reports whether a node is counted: the question names it, and PreFilter does not exclude it.
	allowed func(node string) bool
	// fit is the number of pods on each node, refused why one more is not there; nil where the count ended before.
	fit     []int
	refused []*fwk.Status
	// like is the node whose count holds for each node too: itself, or an equal one.
	like []int
	// kinds has a text for each node that takes a pod. Nodes with the same one are equal; those with "" have no equal.
	kinds []string
}

// capacity answers how many more pods fit. Pods about which each node decides by itself are counted on all nodes side
// by side. Others are placed one after the other by whole cycles.
func (s *session) capacity(q *view.WhatIf, out *view.WhatIfAnswer) error {
	pod, own, err := s.model(&q.Ask)
	if err != nil {
		return err
	}
	c := &count{session: s, pod: pod, own: own}
	// Quotas are asked once at the end, and not by each pod.
	c.admitted = true
	if c.f, err = s.profile(pod); err != nil {
		return err
	}
	if c.all, err = s.nodes.List(); err != nil {
		return err
	}
	if c.allowed, err = s.like(&q.Ask); err != nil {
		return err
	}
	if c.with, err = framework.NewPodInfo(pod); err != nil {
		return bad("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	c.with.CalculateResource() // which several goroutines read
	c.all = slices.DeleteFunc(slices.Clone(c.all), func(n fwk.NodeInfo) bool { return !c.allowed(n.Node().Name) })
	c.fit, c.refused = make([]int, len(c.all)), make([]*fwk.Status, len(c.all))
	c.like, c.kinds = make([]int, len(c.all)), make([]string, len(c.all))
	answer := &view.Capacity{
		Nodes: len(c.all), Groups: []view.CapacityGroup{}, Limits: []view.Refusal{}, Notes: c.notes(),
	}
	out.Capacity = answer
	c.cs = s.state(pod)
	narrowed, status, _ := c.f.RunPreFilterPlugins(s.ctx, c.cs, pod)
	switch {
	case status.IsRejected():
		findings := refusals.Findings(pod, nil, why.PreFilter, status, "")
		answer.Limits = limits(findings)
		return c.explainNone(out)
	case !status.IsSuccess():
		return fmt.Errorf("prepare the filters for pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
	late, err := s.within(s.searchTime(), func() error { return c.run(narrowed) })
	if err != nil {
		return err
	}
	if late {
		answer.Bound = s.searchTime().String()
	}
	c.describe(answer)
	if answer.Room > 0 {
		c.askQuotas(answer)
		if err := c.askLimits(answer); err != nil {
			return err
		}
	}
	if answer.Pods == 0 && answer.Room == 0 && !late {
		err = c.explainNone(out)
	}
	if m := q.Ask.Members; m > 0 {
		answer.Gang = &view.GangCapacity{Members: m, Fit: answer.Pods / m}
	}
	return err
}

// model returns the pod that the counted ones are equal to, and the ResourceClaims that each has for itself.
func (s *session) model(ask *view.Ask) (alike *corev1.Pod, own []*resourcev1.ResourceClaim, err error) {
	switch {
	case len(ask.Pods) != 1:
		return nil, nil, bad("ask.pods has %d pods, want one: the pod that is counted", len(ask.Pods))
	case ask.Reserve || len(ask.Movable) > 0:
		return nil, nil, bad("ask.reserve and ask.movable are not for mode %s", view.CountPods)
	case ask.Members < 0 || ask.Members > view.MostMembers:
		return nil, nil, bad("ask.members is %d, want 1 to %d", ask.Members, view.MostMembers)
	}
	pod := s.pods[ask.Pods[0]]
	if pod == nil {
		if pod, err = s.named(ask.Pods[0]); err != nil {
			return nil, nil, fmt.Errorf("ask.pods[0]: %w", err)
		}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return nil, nil, bad("pod %s: volume %s has a claim: the location of further volumes is unknown; ask "+
				"about the pod without it", ask.Pods[0], v.Name)
		}
	}
	template := convert.SuccessorTemplate(pod)
	alike = &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	alike.Name, alike.UID = pod.Name, types.UID(fmt.Sprintf("whatif-%d-alike", s.round))
	alike.OwnerReferences, alike.Spec.NodeName = pod.OwnerReferences, ""
	alike.Spec.ResourceClaims = pod.Spec.ResourceClaims
	own, err = s.arrive(alike, pod)
	return alike, own, err
}

// notes say what is not counted.
func (c *count) notes() (notes []string) {
	if c.hasFilter("LoadAwareScheduling") {
		notes = append(notes, "what the counted pods will use of the nodes is not estimated")
	}
	return notes
}

// hasFilter reports whether the profile has a filter of a name.
func (c *count) hasFilter(name string) bool {
	return config.Enables(c.f.ListPlugins().Filter, name)
}

// like returns the nodes that are counted.
func (s *session) like(ask *view.Ask) (func(node string) bool, error) {
	all, named := sets.New[string](), sets.New(ask.Nodes...)
	list, err := s.nodes.List()
	if err != nil {
		return nil, err
	}
	kind := ""
	if ask.NodesLike != "" {
		like, err := s.nodes.Get(ask.NodesLike)
		if err != nil || like.Node() == nil {
			return nil, bad("ask.nodesLike: node %s does not exist", ask.NodesLike)
		}
		kind = kindOf(like.Node())
	}
	for _, n := range list {
		name := n.Node().Name
		if (len(named) == 0 || named.Has(name)) && (kind == "" || kindOf(n.Node()) == kind) {
			all.Insert(name)
		}
	}
	return all.Has, nil
}

// kindOf is what nodes of one kind have in common.
func kindOf(n *corev1.Node) string {
	words := []string{n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelArchStable]}
	for name, amount := range n.Status.Capacity {
		if name == corev1.ResourceCPU || strings.Contains(string(name), "/") {
			words = append(words, string(name)+"="+amount.String())
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// run counts. What each node decides by itself is the same in whichever order pods come to the nodes.
//
// There are two ways. Where each node decides by itself, nodes are filled side by side, of equal ones only the first.
// Where pods depend on other nodes, such as by a topology spread constraint, repeat places one after the other, and
// fill then only asks each node what it refuses the next pod for.
func (c *count) run(narrowed *fwk.PreFilterResult) error {
	allowed := c.allowed
	c.allowed = func(node string) bool {
		return allowed(node) && (narrowed.AllNodes() || narrowed.NodeNames.Has(node))
	}
	most := mostRoom
	if !c.eachByItself() {
		if err := c.repeat(); err != nil {
			return err
		}
		most = 0
		c.cs = c.state(c.pod)
		if _, status, _ := c.f.RunPreFilterPlugins(c.ctx, c.cs, c.pod); !status.IsSuccess() {
			return status.AsError()
		}
	}
	sharing := most > 0 && c.mayShare()
	if err := c.parallel(len(c.all), func(i int) error {
		c.like[i] = i
		if sharing {
			c.kinds[i] = c.kind(c.all[i])
		}
		if c.kinds[i] != "" {
			return nil
		}
		// After repeat, most is 0: each node is asked only why it refuses one more pod.
		return c.fill(i, most)
	}); err != nil {
		return err
	}
	first, distinct := map[string]int{}, []int{}
	for i, kind := range c.kinds {
		if kind == "" {
			continue
		}
		if _, known := first[kind]; !known {
			first[kind] = i
			distinct = append(distinct, i)
		}
		c.like[i] = first[kind]
	}
	if err := c.parallel(len(distinct), func(n int) error { return c.fill(distinct[n], most) }); err != nil {
		return err
	}
	for i, equal := range c.like {
		c.fit[i], c.refused[i] = c.fit[equal], c.refused[equal]
	}
	return c.ctx.Err()
}

// parallel calls f for 0 to n-1 by several goroutines.
func (c *count) parallel(n int, f func(i int) error) error {
	failed := make([]error, n)
	c.f.Parallelizer().Until(c.ctx, n, func(i int) { failed[i] = f(i) }, "Capacity")
	return errors.Join(failed...)
}

// eachByItself reports whether no pod of the count changes what another node answers, apart from what some plugins
// answer.
func (c *count) eachByItself(apart ...string) bool {
	skipped := c.cs.GetSkipFilterPlugins()
	return !slices.ContainsFunc(c.f.ListPlugins().Filter.Enabled, func(p config.Plugin) bool {
		return !skipped.Has(p.Name) && !nodeByNode.Has(p.Name) && !slices.Contains(apart, p.Name) &&
			(p.Name != names.InterPodAffinity || c.selects())
	})
}

// rounds returns the nodes that repeat puts pods on in each round, until no more fit on them: all of them at once, or
// one after the other where only ResourceClaims of their own make pods depend on each other.
func (c *count) rounds() (rounds []func(node string) bool) {
	if len(c.own) < len(c.pod.Spec.ResourceClaims) || !c.eachByItself(names.DynamicResources) {
		return append(rounds, c.allowed)
	}
	for _, n := range c.all {
		if one := n.Node().Name; c.allowed(one) {
			rounds = append(rounds, func(node string) bool { return node == one })
		}
	}
	return rounds
}

// selects reports whether pods of the count look for others, which may be of the count.
func (c *count) selects() bool {
	return len(c.with.GetRequiredAffinityTerms())+len(c.with.GetRequiredAntiAffinityTerms()) > 0
}

// mayShare reports whether equal nodes answer alike, and their accounts are asked: to fill nodes without that costs
// less than to compare them.
func (c *count) mayShare() bool {
	skipped := c.cs.GetSkipFilterPlugins()
	others := func(p config.Plugin) bool { return !skipped.Has(p.Name) && !ofKind.Has(p.Name) }
	return !skipped.HasAll("NodeNUMAResource", "DeviceShare") &&
		!slices.ContainsFunc(c.f.ListPlugins().Filter.Enabled, others)
}

// kind returns a text that two nodes share only if they take the same number of pods and then refuse one more for the
// same reason. It is "" for a node that is compared with no other, and for one that refuses the first pod: to ask costs
// less. What a node has besides amounts, ports and its account, such as labels and taints, stays during the count.
func (c *count) kind(info fwk.NodeInfo) string {
	name := info.Node().Name
	if !c.allowed(name) || len(c.f.NominatedPodsForNode(name)) > 0 ||
		!c.f.RunFilterPlugins(c.ctx, c.cs.Clone(), c.pod, info).IsSuccess() {
		return ""
	}
	account := c.trial.Likeness(name)
	if account == "" {
		return ""
	}
	return fmt.Sprintf("%+v %+v %d %v %s", info.GetAllocatable(), info.GetRequested(), len(info.GetPods()),
		info.GetUsedPorts(), account)
}

// fill puts pods on one node until it refuses one, at most so many. Filter and Reserve are both asked, since the exact
// answer may refuse what a filter lets pass. A node is copied before its first pod, so one that takes none costs no
// copy.
func (c *count) fill(i, most int) error {
	info, cs := c.all[i], c.cs.Clone()
	name := info.Node().Name
	if !c.allowed(name) {
		c.refused[i] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			"node(s) didn't match Pod's node affinity/selector").WithPlugin(names.NodeAffinity)
		return nil
	}
	for {
		status := c.f.RunFilterPluginsWithNominatedPods(c.ctx, cs, c.pod, info)
		if status.IsSuccess() && c.fit[i] >= most {
			return nil
		}
		if status.IsSuccess() {
			_, _, status = c.Reserve(c.ctx, c.f, cs, c.pod, name)
		}
		select {
		case <-c.ctx.Done(): // the count has ended
			return nil
		default:
		}
		switch {
		case status.IsRejected():
			c.refused[i] = status
			return nil
		case !status.IsSuccess():
			return fmt.Errorf("count pods on node %s: %w", name, status.AsError())
		}
		if c.fit[i]++; c.fit[i] == 1 {
			info = info.Snapshot()
		}
		info.AddPodInfo(c.with)
		c.all[i] = info
		cs = c.cs.Clone()
		// The next pod differs in its UID alone, so that it need not be parsed again.
		c.trial.Next(cs, fmt.Sprintf("%s-%d", c.pod.UID, c.fit[i]))
	}
}

// repeat places one pod after the other by whole cycles until none fits.
func (c *count) repeat() error {
	index := make(map[string]int, len(c.all))
	for i, n := range c.all {
		index[n.Node().Name] = i
	}
	// The nodes of the session are other copies now.
	defer func() {
		for name, i := range index {
			if info, err := c.nodes.Get(name); err == nil {
				c.all[i] = info
			}
		}
	}()
	rounds := c.rounds()
	for n := 1; len(rounds) > 0; n++ {
		next := *c.pod
		next.Name, next.UID = fmt.Sprintf("%s-%d", c.pod.Name, n), types.UID(fmt.Sprintf("%s-%d", c.pod.UID, n))
		next.Status.ResourceClaimStatuses, next.Status.ExtendedResourceClaimStatus = nil, nil
		if _, err := c.arrive(&next, c.pod); err != nil {
			return err
		}
		p, err := c.place(&next, rounds[0])
		switch {
		case err != nil:
			return err
		case p == nil:
			rounds = rounds[1:]
		default:
			c.fit[index[p.node]]++
		}
	}
	return nil
}

// describe adds to the answer what was counted. Nodes are of one group if they take the same number of pods and lack
// the same for one more: the code and the resource of the root cause, not the amounts, which differ from node to node.
func (c *count) describe(out *view.Capacity) {
	added := sets.New(c.nodes.added...)
	type key struct {
		fit   int
		lacks string
	}
	groups := map[key]*group{}
	var having, all []why.Finding
	for i, n := range c.all {
		name := n.Node().Name
		out.Room += c.fit[i]
		if added.Has(name) {
			out.Added += c.fit[i]
		}
		var findings []why.Finding
		if c.refused[i] != nil {
			findings = refusals.Findings(c.pod, c.all[c.like[i]], why.Filter, c.refused[i], "")
			for k := range findings {
				findings[k].Object = name
			}
		}
		root := why.Root(findings)
		k := key{c.fit[i], root.Code.String() + "/" + string(root.Resource)}
		if groups[k] == nil {
			groups[k] = &group{}
		}
		groups[k].Nodes = append(groups[k].Nodes, name)
		groups[k].Fit = c.fit[i]
		groups[k].findings = append(groups[k].findings, findings...)
		if all = append(all, findings...); c.fit[i] > 0 {
			having = append(having, findings...)
		}
	}
	out.Pods = out.Room
	for _, g := range groups {
		if root := why.Root(g.findings); !root.OK() {
			g.Lacks = &view.Refusal{Wire: root.Wire(), HaveNeed: root.HaveNeed()}
		}
		slices.Sort(g.Nodes)
		out.Groups = append(out.Groups, g.CapacityGroup)
	}
	slices.SortFunc(out.Groups, func(a, b view.CapacityGroup) int {
		return cmp.Or(cmp.Compare(b.Fit*len(b.Nodes), a.Fit*len(a.Nodes)), cmp.Compare(b.Fit, a.Fit),
			strings.Compare(a.Nodes[0], b.Nodes[0]))
	})
	// Nodes on which pods fit say what limits the number; the others are out of the question anyway.
	if len(having) > 0 {
		all = having
	}
	out.Limits = limits(all)
}

// group is nodes that answer alike, with what they refuse one more pod for.
type group struct {
	view.CapacityGroup
	// findings are of all its nodes.
	findings []why.Finding
}

// limits returns what findings come to, the root cause first.
func limits(findings []why.Finding) []view.Refusal {
	out := []view.Refusal{}
	for _, o := range why.RootFirst(findings) {
		out = append(out, view.Refusal{Wire: o.Wire(), HaveNeed: o.HaveNeed()})
	}
	return out
}

// askQuotas lowers the answer to what the quotas of the pods allow.
func (c *count) askQuotas(out *view.Capacity) {
	// Without the plugin no quota limits pods.
	if !config.Enables(c.f.ListPlugins().PreFilter, "ElasticQuota") {
		return
	}
	account := c.quotas
	if account == nil {
		account = c.Quotas()
	}
	n, name, status := account.Most(c.pod, c.own, out.Room)
	if status == nil {
		return
	}
	out.Pods = n
	for _, lacks := range limits(refusals.Findings(c.pod, nil, why.PreFilter, status, "")) {
		out.Quota = &view.QuotaCapacity{Name: name, Pods: n, Lacks: lacks}
	}
}

// askLimits lowers the answer to what the LimitRanges and ResourceQuotas of the namespace allow.
func (c *count) askLimits(out *view.Capacity) error {
	l, err := c.limitsOf(c.pod.Namespace)
	if err != nil {
		return err
	}
	if n, refused := l.Most(c.pod, out.Room); refused != nil {
		out.Pods = min(out.Pods, n)
		text := refused.Error()
		if _, cause, named := strings.Cut(text, " is forbidden: "); named {
			text = cause // before it is the name of a pod, which the counted ones do not have
		}
		out.Admission = &view.AdmissionCapacity{Pods: n, Message: text}
	}
	return nil
}

// explainNone adds why no node takes a pod.
func (c *count) explainNone(out *view.WhatIfAnswer) error {
	verdict, err := refusals.In(c.ctx, c.f, c.state(c.pod), c.pod)
	if err == nil {
		verdict.Generation = c.round
		out.Unschedulable = append(out.Unschedulable, view.Explain(describe.Pod(c.pod), verdict, nil))
	}
	return err
}
