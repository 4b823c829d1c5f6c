package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/health"
)

// Components of an installation, as the label app.kubernetes.io/name has them.
const (
	SchedulerName   = "tenon-scheduler"
	ManagerName     = "tenon-manager"
	DeschedulerName = "tenon-descheduler"
	AgentName       = "tenon-agent"
)

// Installation is what the API says of Tenon in a cluster, read at one time.
type Installation struct {
	Now time.Time
	// DurationText writes durations for people, such as "10y".
	DurationText func(time.Duration) string
	Subject      string
	// Local is an installation of tenon up, whose components the API does not show.
	Local bool
	// Client is the version of who asks, "" when it is not known.
	Client string
	// Kubernetes is the API server's version, "" when it is not known. Lacking are resources of other releases and
	// settings of Kubernetes, which Tenon uses where the API server has them.
	Kubernetes string
	Lacking    []string
	// NativeGangs are the resources by which the API server serves gangs of Kubernetes itself, each with its version
	// and its feature gate.
	NativeGangs  []string
	Components   []Component
	Certificates []Certificate
	Nodes        []NodeReport
	// Strategy is what the check of the ConfigMap slo-controller-config found; empty without one.
	Strategy []Finding
	// Left are the nodes that tenon leave takes Tenon off. No report is due from them, and they are not in Nodes.
	Left []string
	// Webhooks is how many are registered.
	Webhooks int
	// Unread is why what a check needs could not be read, by check or resource.
	Unread map[string]string
	// Admission is what is wrong with the answer to a pod that the webhooks must refuse, if Tried, Diagnostics what is
	// wrong with the scheduler's answer; "" where it is the right one.
	Admission, Diagnostics string
	Tried                  bool
	// Endpoints are the paths that the scheduler's diagnostics serve, by method; nil where it does not answer.
	Endpoints map[string][]string
}

// Component is what a workload of the API runs.
type Component struct {
	Name string `json:"name"`
	// Desired replicas are wanted, Ready ones serve.
	Desired int `json:"desired"`
	Ready   int `json:"ready"`
	// Stuck is why one of its pods does not get ready; "" where none says.
	Stuck string `json:"stuck,omitempty"`
	// Versions are those of its pods, sorted. Pods counts the pods of each.
	Versions []string       `json:"versions"`
	Pods     map[string]int `json:"pods,omitempty"`
	// Leader is the pod that holds the lease, since LeaderSince, and LeaderVersion its version; LeaseEnds is when the
	// lease ends unless it is renewed. All are zero for a component without one.
	Leader        string     `json:"leader,omitempty"`
	LeaderVersion string     `json:"leaderVersion,omitempty"`
	LeaderSince   *time.Time `json:"leaderSince,omitempty"`
	LeaseEnds     *time.Time `json:"leaseEnds,omitempty"`
	// LeaderGone is true where no such pod exists, as for some seconds after an uninstallation.
	LeaderGone bool `json:"-"`
}

// Certificate is the one of a place that holds longest: where authorities overlap there are several.
type Certificate struct {
	Where       string
	From, Until time.Time
}

// NodeReport is what the agent of a node has reported, and the node's health.
type NodeReport struct {
	Name string
	// Ready: the pod of the agent is ready.
	Ready bool
	// Topology and Device are when the objects were last written; zero where there is none.
	Topology, Device time.Time
	Health           health.Health
}

// Status is the answer of tenon status.
type Status struct {
	Diagnosis
	Components []Component `json:"components"`
	// SchedulerVersion is the version with which those of the other components are compared: that of the scheduler that
	// leads. It is "" where that is not known.
	SchedulerVersion string              `json:"schedulerVersion,omitempty"`
	Reports          []Reports           `json:"reports"`
	Endpoints        map[string][]string `json:"endpoints,omitempty"`
}

// Reports are the objects of one kind that agents have written about nodes.
type Reports struct {
	// Kind is topology, which is due from every node, or devices.
	Kind string `json:"kind"`
	// Nodes is the number of nodes with a report, Of that of the nodes from which one is due or present.
	Nodes int `json:"nodes"`
	Of    int `json:"of"`
	// Oldest is when the oldest report was last written, which is that of OldestNode; nil where there is none.
	Oldest     *time.Time `json:"oldest,omitempty"`
	OldestNode string     `json:"oldestNode,omitempty"`
}

// StatusOf checks an installation. Equal input gives equal findings.
func StatusOf(in *Installation) Status {
	c := checks{Installation: in, written: []Reports{}}
	if !in.Local {
		for _, name := range []string{SchedulerName, ManagerName, DeschedulerName, AgentName} {
			c.component(name)
		}
		c.versions()
	}
	c.kubernetes()
	c.servers()
	c.certificates()
	c.nodes()
	c.found = append(c.found, in.Strategy...)
	for _, check := range slices.Sorted(maps.Keys(in.Unread)) {
		c.add(check, "", "not known: "+in.Unread[check], CheckUnknown, "the rest of the answer holds without it",
			"ask an administrator for the right")
	}
	d := NewDiagnosis(in.Subject, c.found)
	d.Kind = "Status"
	return Status{d, append([]Component{}, in.Components...), c.schedulerVersion(), c.written, in.Endpoints}
}

type checks struct {
	*Installation
	found   []Finding
	written []Reports
}

// add adds a finding. The consequence and the remedy are left out where all is well.
func (c *checks) add(check, where, found string, status CheckStatus, why, remedy string) {
	f := Finding{Check: check, Where: where, Found: found, Status: status}
	if status != CheckOK {
		f = f.Because(status, why, remedy)
	}
	c.found = append(c.found, f)
}

func (c *checks) kubernetes() {
	if c.Kubernetes == "" {
		return
	}
	found := c.Kubernetes
	if len(c.NativeGangs) > 0 {
		found += " with " + strings.Join(c.NativeGangs, ", ")
	}
	if len(c.Lacking) > 0 {
		found += ": Tenon works without " + strings.Join(c.Lacking, ", ")
	}
	c.add("kubernetes", "API server", found, CheckOK, "", "")
}

func (c *checks) unread(what string) bool { return c.Unread[what] != "" }

func okUnless(bad bool, status CheckStatus) CheckStatus {
	if bad {
		return status
	}
	return CheckOK
}

func (c *checks) component(name string) {
	workload, why := "deployments", "no pod of Tenon's scheduler names is placed"
	switch name {
	case ManagerName:
		why = "wrong manifests are not refused, and quotas and PodGroups get no status"
	case DeschedulerName:
		why = "no pod is moved, and PodMigrationJobs wait"
	case AgentName:
		workload, why = "daemonsets", "pods with exclusive CPUs or devices do not start where it is not ready"
	}
	if c.unread(workload) {
		return
	}
	i := slices.IndexFunc(c.Components, func(component Component) bool { return component.Name == name })
	if i < 0 && name == DeschedulerName {
		return // the chart installs it where it is wanted
	}
	if i < 0 {
		c.add(name, "", "not installed", CheckFail, why,
			"install it, or set TENON_NAMESPACE to the namespace of the installation")
		return
	}
	component, logs := c.Components[i], "kubectl logs -l app.kubernetes.io/name="+name+" -n NAMESPACE"
	status := okUnless(component.Ready < component.Desired, CheckWarn)
	if name == AgentName && status != CheckOK || name != AgentName && component.Ready == 0 {
		status = CheckFail
	}
	text, remedy := fmt.Sprintf("%d of %d ready", component.Ready, component.Desired), logs
	if status != CheckOK && component.Stuck != "" {
		text, remedy = text+"; "+component.Stuck, strings.Replace(logs, "logs", "describe pods", 1)
	}
	c.add(name, "", text, status, why, remedy)
	if component.LeaseEnds != nil {
		lost := component.Leader == "" || component.LeaseEnds.Before(c.Now)
		if text = component.Leader; lost {
			text = fmt.Sprintf("none: the lease of %q ended %s ago", text, c.age(*component.LeaseEnds))
		} else if component.LeaderGone {
			lost, text = true, fmt.Sprintf("none: the lease is that of pod %q, which is gone", text)
		}
		c.add(name+"-leader", "", text, okUnless(lost, CheckFail), why, logs)
	}
}

// schedulerVersion is that of the scheduler that leads, or of all its replicas.
func (c *checks) schedulerVersion() string {
	i := slices.IndexFunc(c.Components, func(component Component) bool { return component.Name == SchedulerName })
	switch {
	case i < 0:
		return ""
	case c.Components[i].LeaderVersion == "" && len(c.Components[i].Versions) == 1:
		return c.Components[i].Versions[0]
	}
	return c.Components[i].LeaderVersion
}

// versions compares those of all pods and of who asks.
func (c *checks) versions() {
	var all, others []string
	leads := c.schedulerVersion()
	for _, component := range c.Components {
		all = append(all, component.Versions...)
		for _, v := range component.Versions {
			if n := component.Pods[v]; n > 0 && leads != "" && v != leads {
				others = append(others, fmt.Sprintf("%s %s on %s", component.Name, v, Count(n, "pod")))
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	switch {
	case len(all) > 1:
		text := strings.Join(all, ", ") + " at once"
		if len(others) > 0 {
			text += "; the scheduler that leads has " + leads + ", " + strings.Join(others, ", ")
		}
		c.add("versions", "", text, CheckWarn,
			"an upgrade is under way or has stopped: only neighbouring minor versions work together",
			"wait for the rollout: kubectl rollout status")
	case len(all) == 1:
		c.add("versions", "", all[0]+", this command "+cmp.Or(c.Client, "unknown"),
			okUnless(c.Client != "" && c.Client != all[0], CheckWarn), "answers of another version may lack fields",
			"use the command of the version that is installed")
	}
}

func (c *checks) servers() {
	if !c.unread("diagnostics") {
		c.add("diagnostics", "", cmp.Or(c.Diagnostics, "the scheduler that leads answers"),
			okUnless(c.Diagnostics != "", CheckWarn), "explain, quota and gang show what the objects say, not what "+
				"the scheduler accounts", `see "What the diagnostics need" in docs/guide/status.md`)
	}
	switch {
	case !c.unread("webhooks") && c.Webhooks == 0:
		c.add("webhooks", "", "none is registered", CheckFail,
			"invalid manifests are not refused, and pods with exclusive CPUs may start unconfined", "install them")
	case !c.Tried && !c.unread("webhooks"):
		c.add("webhooks", "", fmt.Sprintf("%d are registered; tenon status tries a pod", c.Webhooks), CheckOK, "", "")
	case c.Tried && !c.unread("admission"):
		c.add("webhooks", "", cmp.Or(c.Admission, "a wrong pod is refused (dry run)"),
			okUnless(c.Admission != "", CheckFail), "pods that use Tenon cannot be created, or are not checked",
			"check the manager's pods, its Service, and whether the API server reaches it")
	}
}

// certificates fail that cannot be used. A warning is about one that was not rotated: that is due at two thirds of its
// life.
func (c *checks) certificates() {
	for _, certificate := range c.Certificates {
		left := certificate.Until.Sub(c.Now)
		text, status := "valid for "+c.DurationText(left), CheckFail
		switch {
		case certificate.Until.IsZero():
			text = "none"
		case c.Now.Before(certificate.From):
			text = "not valid before " + certificate.From.UTC().Format(time.RFC3339) + ": compare the clocks"
		case left <= 0:
			text = "ended " + c.DurationText(-left) + " ago"
		default:
			status = okUnless(left < certificate.Until.Sub(certificate.From)/4, CheckWarn)
		}
		c.add("certificate", certificate.Where, text, status, "who checks it refuses the webhooks and the diagnostics",
			"see the manager's log: it makes and rotates the certificates")
	}
}

func (c *checks) nodes() {
	if c.unread("nodes") {
		return
	}
	var without []string
	for _, n := range c.Nodes {
		if !n.Ready {
			without = append(without, n.Name)
		}
	}
	c.health()
	if !c.Local && !c.unread("pods") {
		c.add("agents", "", fmt.Sprintf("ready on %d of %s%s", len(c.Nodes)-len(without), Count(len(c.Nodes), "node"),
			few(without)), okUnless(len(without) > 0, CheckWarn), "nothing is enforced there",
			"kubectl describe daemonset "+AgentName+": a taint or a selector may keep it away")
	}
	if len(c.Left) > 0 {
		c.add("left", "", first(c.Left), CheckWarn,
			"tenon leave removed Tenon: no pod gets exclusive CPUs or devices there",
			"kubectl annotate node NAME node.tenon.sh/leave- brings a node back")
	}
	c.reports("topology", "noderesourcetopologies", func(n NodeReport) time.Time { return n.Topology })
	c.reports("devices", "devices", func(n NodeReport) time.Time { return n.Device })
}

// health names the nodes that new pods cannot use, by cause, and then those that only some pods tolerate.
func (c *checks) health() {
	closed, names, taints := 0, map[string][]string{}, map[string][]string{}
	var causes []string
	for _, n := range c.Nodes {
		if n.Health.Closed != "" {
			closed++
		}
		for _, f := range n.Health.Findings {
			group := names
			if f.Cause == health.Taint {
				group = taints
			}
			if group[f.Text] == nil {
				causes = append(causes, f.Text)
			}
			group[f.Text] = append(group[f.Text], n.Name)
		}
	}
	text := fmt.Sprintf("new pods can use %d of %s", len(c.Nodes)-closed, Count(len(c.Nodes), "node"))
	for _, group := range []map[string][]string{names, taints} {
		for _, cause := range causes {
			if nodes := group[cause]; nodes != nil {
				text += "; " + cause + ": " + first(nodes)
			}
		}
	}
	status := okUnless(closed > 0, CheckWarn)
	if closed > 0 && closed == len(c.Nodes) {
		status = CheckFail
	}
	c.add("nodes", "", text, status, "new pods cannot use what is free on these nodes",
		"kubectl describe node NAME says what is wrong; kubectl uncordon NAME ends a cordon")
}

// reports shows the age of one kind of report. An agent writes on change alone, so an old one may hold; only a topology
// is due from every node.
func (c *checks) reports(check, resource string, lastReport func(NodeReport) time.Time) {
	var oldest NodeReport
	var missing []string
	for _, n := range c.Nodes {
		switch {
		case lastReport(n).IsZero():
			missing = append(missing, n.Name)
		case oldest.Name == "" || lastReport(n).Before(lastReport(oldest)):
			oldest = n
		}
	}
	text, due := "none", check == "topology"
	report := Reports{Kind: check, Nodes: len(c.Nodes) - len(missing), Of: len(c.Nodes) - len(missing)}
	if due {
		report.Of = len(c.Nodes)
	}
	if oldest.Name != "" {
		at := lastReport(oldest)
		report.Oldest, report.OldestNode = &at, oldest.Name
		text = fmt.Sprintf("of %s, the oldest written %s ago (%s)", Count(len(c.Nodes)-len(missing), "node"),
			c.age(lastReport(oldest)), oldest.Name)
	}
	if due {
		text += few(missing)
	}
	if !c.unread(resource) && (due || oldest.Name != "") {
		c.written = append(c.written, report)
		c.add(check, "", text, okUnless(due && (len(missing) > 0 || oldest.Name == ""), CheckWarn),
			"pods with exclusive CPUs are never placed there", "tenon doctor --node NAME shows what the node lacks")
	}
}

func (c *checks) age(t time.Time) string { return c.DurationText(c.Now.Sub(t).Round(time.Second)) }

// few names the first of those that lack something.
func few(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; not " + first(names)
}

// first names the first of several, and counts the others.
func first(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// IsComplete reports whether no check failed and all replicas are ready.
func (s *Status) IsComplete() bool {
	return s.Healthy() && !slices.ContainsFunc(s.Components, func(c Component) bool { return c.Ready < c.Desired })
}

// Print writes the components, and below them the findings, for a terminal of that width.
func (s *Status) Print(w io.Writer, width int) error {
	for _, c := range s.Components {
		var row strings.Builder
		label := fmt.Sprintf("%-16s %d/%d   ", c.Name, c.Ready, c.Desired)
		printHanging(&row, label, strings.Join(c.Versions, ", "), width)
		if _, err := io.WriteString(w, row.String()); err != nil {
			return err
		}
	}
	return s.Diagnosis.Print(w, width)
}
