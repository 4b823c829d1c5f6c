package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

func newLeave(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var format string
	var wait time.Duration
	var yes, dryRun bool
	l := leaver{removed: map[string][]string{}, answers: map[string]string{}, blocked: map[string]bool{}}
	c := help.Command(texts, "leave", &cobra.Command{
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if wait < 0 {
				return usagef("--wait %v is not allowed: use 0 or more", wait)
			}
			local, err := addressesInKubeconfig(flags)
			if err == nil {
				l.cluster, err = connect(flags)
			}
			if err != nil {
				return err
			}
			l.local = len(local) > 0
			if dryRun {
				answer, err := l.plan(c.Context())
				if err != nil {
					return err
				}
				return printChecks(streams.Out, format, &answer)
			}
			if l.name == "" && !yes {
				nodes, _, err := l.nodes(c.Context())
				if err != nil {
					return err
				}
				if err := confirm(streams, l.config.Host, nodes); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(c.Context(), wait)
			defer cancel()
			answer, err := awaitStatus(ctx, func() (view.Status, error) {
				d, err := l.step(c.Context())
				if err != nil {
					cancel() // it would fail again
				}
				return view.Status{Diagnosis: d}, err
			})
			if err != nil {
				return err
			}
			return printChecks(streams.Out, format, &answer.Diagnosis)
		},
	})
	outputFlag(c, &format)
	c.Flags().StringVar(&l.name, "node", "", "leave only this node")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done on each node, without changing anything")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "leave all nodes without asking")
	utilruntime.Must(c.RegisterFlagCompletionFunc("node", completeNames(flags, "node")))
	c.Flags().DurationVar(&wait, "wait", 5*time.Minute, "time to wait until everything is done")
	return c
}

// namedNodes is the number of nodes that the question names.
const namedNodes = 20

// confirm names the nodes of a cluster and asks whether all of them are meant. Without a terminal to answer on, it
// refuses.
func confirm(streams genericiooptions.IOStreams, cluster string, nodes []corev1.Node) error {
	if in, ok := streams.In.(*os.File); ok && !term.IsTerminal(int(in.Fd())) {
		return usagef("leave without --node acts on all nodes of %s: add --yes, or name one with --node", cluster)
	}
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	if len(names) > namedNodes {
		names = append(names[:namedNodes], fmt.Sprintf("and %d more", len(nodes)-namedNodes))
	}
	const question = "Nodes of %s: %s.\nTake Tenon off all of them, and remove its webhooks and agents? [y/N] "
	fmt.Fprintf(streams.ErrOut, question, cluster, strings.Join(names, ", "))
	answer, err := bufio.NewReader(streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return usagef("nothing was changed: the answer %q is not yes", strings.TrimSpace(answer))
}

// installationCheck is the finding about what is not of one node.
const installationCheck = "installation"

// leaver takes Tenon off nodes.
type leaver struct {
	cluster
	// local: each node runs its agent itself.
	local bool
	// name is the only node that is left; "" for all.
	name    string
	removed map[string][]string // what was removed, by check
	answers map[string]string   // of the agents of nodes that are left
	// blocked has the nodes that are not left until someone does what their agent's answer says.
	blocked map[string]bool
}

// step does what can be done now.
func (l *leaver) step(ctx context.Context) (answer view.Diagnosis, err error) {
	answer = view.NewDiagnosis("Tenon leaves", nil)
	answer.Kind = "Leave"
	nodes, agents, err := l.nodes(ctx)
	if err != nil {
		return answer, err
	}
	reports, err := l.reports(ctx)
	if err != nil {
		return answer, err
	}
	add := func(check, waits, left string) {
		f := view.Finding{Check: check, Status: view.CheckWait, Found: waits}
		if l.blocked[check] {
			f.Status = view.CheckFail
		}
		if waits == "" {
			f.Status, f.Found = view.CheckOK, left
		}
		if removed := l.removed[check]; waits == "" && len(removed) > 0 {
			f.Found += "; removed " + strings.Join(removed, ", ")
		}
		answer.Findings = append(answer.Findings, f)
	}
	for i := range nodes {
		n := &nodes[i]
		waits, err := l.node(ctx, n, l.hasAgent(n, agents), reports[n.Name])
		if err != nil {
			return answer, err
		}
		add(n.Name, waits, cmp.Or(l.answers[n.Name], "no agent ran: containers keep their CPUs until they are "+
			"recreated"))
	}
	if l.name != "" || l.local || !answer.Healthy() {
		return answer, nil
	}
	const check = installationCheck
	hooks := admissionv1.SchemeGroupVersion
	err = errors.Join(l.remove(ctx, check, hooks.WithResource("mutatingwebhookconfigurations"), "tenon"),
		l.remove(ctx, check, hooks.WithResource("validatingwebhookconfigurations"), "tenon"),
		l.remove(ctx, check, appsv1.SchemeGroupVersion.WithResource("daemonsets"), view.AgentName))
	waits := ""
	if len(agents) > 0 {
		waits = "agents have not ended yet"
	}
	add(check, waits, "next is helm uninstall")
	return answer, err
}

// plan says what step would do until all is done, and changes nothing.
func (l *leaver) plan(ctx context.Context) (answer view.Diagnosis, err error) {
	answer = view.NewDiagnosis("Tenon would leave", nil)
	answer.Kind = "Leave"
	nodes, agents, err := l.nodes(ctx)
	if err != nil {
		return answer, err
	}
	reports, err := l.reports(ctx)
	if err != nil {
		return answer, err
	}
	add := func(check, found string) {
		answer.Findings = append(answer.Findings, view.Finding{Check: check, Status: view.CheckOK, Found: found})
	}
	for i := range nodes {
		n := &nodes[i]
		_, remove := convert.Clean(n, func(string) bool { return false })
		for _, r := range reports[n.Name] {
			remove = append(remove, r.Resource+"/"+n.Name)
		}
		remove = slices.Compact(remove) // one name for all versions of a report
		does := "would find nothing to remove"
		if len(remove) > 0 {
			does = "would remove " + strings.Join(remove, ", ")
		}
		if l.hasAgent(n, agents) {
			does = "would ask its agent to return the containers' cgroups; " + does
		}
		add(n.Name, does)
	}
	if l.name == "" && !l.local {
		add(installationCheck, "would remove the webhooks and the agents")
	}
	return answer, nil
}

// nodes returns the nodes that are to be left, and the pods of the agents of all nodes.
func (l *leaver) nodes(ctx context.Context) ([]corev1.Node, []corev1.Pod, error) {
	linux := metav1.ListOptions{LabelSelector: corev1.LabelOSStable + "!=windows"}
	nodes, err := l.core.CoreV1().Nodes().List(ctx, linux)
	if err != nil {
		return nil, nil, rightMissing(err, "list on nodes")
	}
	if l.name != "" {
		if nodes.Items, err = only(nodes.Items, l.name); err != nil {
			return nil, nil, err
		}
	}
	pods, err := l.core.CoreV1().Pods(installedIn()).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
	if err != nil {
		return nil, nil, rightMissing(err, "list on pods of namespace "+installedIn())
	}
	return nodes.Items, pods.Items, nil
}

// hasAgent reports whether a node has an agent, which gives the groups of its containers back.
func (l *leaver) hasAgent(n *corev1.Node, agents []corev1.Pod) bool {
	return l.local || slices.ContainsFunc(agents, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name })
}

// reports returns the kinds of objects that agents have written, by node.
func (l *leaver) reports(ctx context.Context) (map[string][]schema.GroupVersionResource, error) {
	byKey := map[string][]schema.GroupVersionResource{}
	for _, r := range []schema.GroupVersionResource{
		v1alpha2.Resource(), v1alpha2.Resource().GroupResource().WithVersion("v1alpha1"), devicev1alpha1.Resource(),
		nodeinfo.Resource(),
	} {
		found, err := l.objects(ctx, r, l.name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, rightMissing(err, "list on "+r.GroupResource().String())
		}
		for i := range found {
			ours := func(f metav1.ManagedFieldsEntry) bool { return f.Manager == view.AgentName }
			if name := found[i].GetName(); slices.ContainsFunc(found[i].GetManagedFields(), ours) {
				byKey[name] = append(byKey[name], r)
			}
		}
	}
	return byKey, nil
}

// node leaves one node as far as that can be done now, and returns what it waits for; "" when it is left.
func (l *leaver) node(ctx context.Context, n *corev1.Node, hasAgent bool, reports []schema.GroupVersionResource,
) (waits string, err error) {
	answer, said := event.NodeLeft.Condition(), corev1.NodeCondition{}
	for _, c := range n.Status.Conditions {
		if string(c.Type) == answer && c.Status == corev1.ConditionTrue {
			said = c
		}
	}
	clean, removed := convert.Clean(n, func(name string) bool {
		return hasAgent && (name == annotation.LeaveKey || name == answer)
	})
	switch {
	case hasAgent && !annotation.IsLeaving(n.Annotations): // an answer is of an earlier time
		clean, _ = convert.Clean(n, func(name string) bool { return name != answer })
		metav1.SetMetaDataAnnotation(&clean.ObjectMeta, annotation.LeaveKey, "true")
		return "asked its agent", l.change(ctx, n, clean)
	case hasAgent && said.Reason != event.Left:
		l.blocked[n.Name] = said.Message != ""
		return cmp.Or(said.Message, "its agent has not answered yet: tenon doctor --node "+n.Name), nil
	case hasAgent:
		l.answers[n.Name] = said.Message
	}
	before := len(l.removed[n.Name])
	for _, r := range reports {
		if err := l.remove(ctx, n.Name, r, n.Name); err != nil {
			return "", err
		}
	}
	if len(removed) > 0 {
		err = l.change(ctx, n, clean)
	}
	l.removed[n.Name] = append(l.removed[n.Name], removed...)
	if news := l.removed[n.Name][before:]; len(news) > 0 { // a manager that lags may write them once more
		waits = "removed " + strings.Join(news, ", ")
	}
	return waits, err
}

// change writes what differs between two states of a Node: through its status also labels and annotations change.
func (l *leaver) change(ctx context.Context, from, to *corev1.Node) error {
	old, err := json.Marshal(from)
	updated, err1 := json.Marshal(to)
	if err = errors.Join(err, err1); err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, updated, from)
	if err == nil {
		_, err = l.core.CoreV1().Nodes().PatchStatus(ctx, from.Name, patch)
	}
	return rightMissing(err, "patch on nodes/status")
}

// remove deletes an object. One that is gone is ignored.
func (l *leaver) remove(ctx context.Context, check string, r schema.GroupVersionResource, name string) error {
	namespace := ""
	if r.Group == appsv1.GroupName {
		namespace = installedIn()
	}
	err := l.dynamic.Resource(r).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		l.removed[check] = append(l.removed[check], r.Resource+"/"+name)
	}
	return rightMissing(err, "delete on "+r.GroupResource().String())
}
