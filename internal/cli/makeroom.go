package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

type roomOptions struct {
	format, address string
	dryRun          bool
	moves           int
}

func newMakeRoom(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var o roomOptions
	c := help.Command(texts, "make-room", &cobra.Command{
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeArgument(flags, "pod", "gang"),
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := named(args, "pod", "gang")
			if err == nil && name == "" {
				err = usagef("specify pod/NAME or gang/NAME")
			}
			if err == nil && o.format != "table" && !o.dryRun {
				err = usagef("-o needs --dry-run: otherwise the command makes the moves and shows their progress")
			}
			if err != nil {
				return err
			}
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			request := view.RoomRequest{MaxMoves: o.moves, Pods: []string{namespace + "/" + name}}
			if kind == "gang" {
				request.Pods, request.Gang = nil, qualified(namespace, name)
			}
			ctx, end := progress.Show(c.Context(), streams.ErrOut, "make-room", "")
			answer, err := askForRoom(ctx, flags, o.address, &request)
			end()
			if err != nil {
				return err
			}
			width := terminalWidth(streams.Out)
			if o.dryRun || len(answer.Moves) == 0 {
				err := printAnswer(streams.Out, o.format, struct {
					APIVersion string `json:"apiVersion"`
					Kind       string `json:"kind"`
					*view.RoomAnswer
				}{apiVersion, "RoomPlan", answer}, func() string { return drawRoom(answer, width) })
				if err == nil && !o.dryRun && !answer.Found {
					err = errUnhealthy
				}
				return err
			}
			_, _ = io.WriteString(streams.Out, drawRoom(answer, width)+"\n")
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			return cl.makeRoom(c.Context(), streams.Out, answer)
		},
	})
	outputFlag(c, &o.format)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the moves without making them")
	c.Flags().IntVar(&o.moves, "max-moves", 2, "how many pods may move, 1 to 8")
	deschedulerFlag(c, &o.address)
	return c
}

// diagnosticsFlag defines where the scheduler is asked, deschedulerFlag where the descheduler is.
func diagnosticsFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "diagnostics", "",
		"address of the scheduler's diagnostics (default: from the kubeconfig, else the leader)")
}

func deschedulerFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "descheduler", "",
		"address of the descheduler (default: from the kubeconfig, else the leader)")
}

func askForRoom(ctx context.Context, flags *genericclioptions.ConfigFlags, address string, r *view.RoomRequest,
) (*view.RoomAnswer, error) {
	to, err := findDescheduler(flags, address, r)
	if err != nil {
		return nil, err
	}
	answer := &view.RoomAnswer{}
	return answer, to.get(ctx, answer, "/apis/v1/makeroom", "")
}

// drawRoom draws a plan, or why there is none.
func drawRoom(a *view.RoomAnswer, width int) string {
	var out strings.Builder
	need, bound := strings.Join(a.Pods, ", "), ""
	if a.Bound != "" {
		bound = " (bound: " + a.Bound + ")"
	}
	switch {
	case a.Found && len(a.Moves) == 0:
		fmt.Fprintf(&out, "%s: there is room already, on %s\n", need, strings.Join(nodesOf(a), ", "))
		return out.String()
	case a.Found:
		fmt.Fprintf(&out, "Room for %s on %s:\n\n", need, strings.Join(nodesOf(a), ", "))
		c := columns{indent: "  ", width: width}
		c.add("MOVE", "FROM", "TO", "COST", "PRIORITY")
		for _, m := range a.Moves {
			c.add(m.Pod, m.Node, m.Target, m.Cost, m.Priority)
		}
		out.WriteString(c.String())
		if a.Proven {
			fmt.Fprintf(&out, "\nNo smaller set of moves helps (%s searched).\n", view.Count(a.Looked, "set"))
		} else {
			fmt.Fprintf(&out, "\nThe search ended early after %s%s: a smaller set may exist.\n",
				view.Count(a.Looked, "set"), bound)
		}
	case a.Proven:
		fmt.Fprintf(&out, "%s: no set of at most %s helps\n", need, view.Count(a.MaxMoves, "move"))
	default:
		fmt.Fprintf(&out, "%s: none of the %d searched sets of at most %s helps%s\n", need, a.Looked,
			view.Count(a.MaxMoves, "move"), bound)
	}
	if len(a.Unschedulable) > 0 && a.Unschedulable[0].RootCause != nil {
		fmt.Fprintf(&out, "Now: %s\n", a.Unschedulable[0].RootCause.Message)
	}
	drawKept(&out, a.Movable, a.Kept, width)
	return out.String()
}

// drawKept draws a line for each code by which pods may not be moved, with the first pod as an example.
func drawKept(out *strings.Builder, movable int, kept []view.KeptPod, width int) {
	fmt.Fprintf(out, "\n%s may be moved now, %d may not.\n", view.Count(movable, "pod"), len(kept))
	var groups refusalGroups
	for _, k := range kept {
		groups.add("", k)
	}
	groups.draw(out, width)
}

// refusalGroup is pods that were refused by the same code.
type refusalGroup struct {
	plugin, code, example, text string
	pods                        int
}

type refusalGroups []*refusalGroup

func (g *refusalGroups) add(plugin string, k view.KeptPod) {
	first := k.Reasons[0]
	i := slices.IndexFunc(*g, func(r *refusalGroup) bool { return r.plugin == plugin && r.code == first.Code })
	if i < 0 {
		i = len(*g)
		*g = append(*g, &refusalGroup{plugin: plugin, code: first.Code, example: k.Pod, text: first.Message})
	}
	(*g)[i].pods++
}

// draw draws the groups, the largest first. The column of plugins is left out where no group has one.
func (g refusalGroups) draw(out *strings.Builder, width int) {
	if len(g) == 0 {
		return
	}
	slices.SortFunc(g, func(x, y *refusalGroup) int {
		return cmp.Or(y.pods-x.pods, strings.Compare(x.plugin, y.plugin), strings.Compare(x.code, y.code))
	})
	c, plugins := columns{indent: "  ", width: width}, g[0].plugin != ""
	row := func(pods any, code, plugin, example, reason string) {
		if plugins {
			c.add(pods, code, plugin, example, reason)
		} else {
			c.add(pods, code, example, reason)
		}
	}
	row("PODS", "CODE", "PLUGIN", "EXAMPLE", "REASON")
	for _, r := range g {
		row(r.pods, r.code, r.plugin, r.example, strings.TrimPrefix(r.text, r.code+": "))
	}
	out.WriteString(c.String())
}

// nodesOf returns the nodes on which the pods will be, each once.
func nodesOf(a *view.RoomAnswer) (nodes []string) {
	for _, p := range a.Placements {
		if !slices.Contains(nodes, p.Node) {
			nodes = append(nodes, p.Node)
		}
	}
	return nodes
}

// lookEvery is how often make-room looks at its jobs and at the pods that wait.
const lookEvery = time.Second

// roomMoves is what make-room has begun.
type roomMoves struct {
	cluster
	out  io.Writer
	plan *view.RoomAnswer
	room annotation.MigrationRoom // the pods that wait when the command begins
	// said is the last line about each object, by name.
	said map[string]string
}

// makeRoom creates a job for each move of a plan, and waits until the pods that need room have their nodes.
func (c cluster) makeRoom(ctx context.Context, out io.Writer, plan *view.RoomAnswer) error {
	r := &roomMoves{cluster: c, out: out, plan: plan, said: map[string]string{}}
	if _, err := r.nominate(ctx); err != nil {
		return err
	}
	var jobs []string
	for i := range plan.Moves {
		name, err := r.create(ctx, &plan.Moves[i])
		if err != nil {
			return err
		}
		jobs = append(jobs, name)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		running, err := r.report(ctx, jobs)
		if err != nil {
			return err
		}
		waiting, err := r.nominate(ctx)
		switch {
		case err != nil:
			return err
		case waiting == 0:
			return nil
		case running == 0:
			return failure{ExitUnhealthy, fmt.Errorf("all moves have ended, and %s: run tenon make-room again, or see "+
				"tenon explain", view.Count(waiting, "pod")+" still has no node")}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// create creates the job of a move, whose Reservation is on the target node alone.
func (r *roomMoves) create(ctx context.Context, m *view.RoomMove) (name string, err error) {
	namespace, podName, _ := strings.Cut(m.Pod, "/")
	pod, err := r.core.CoreV1().Pods(namespace).Get(ctx, podName, metav1.GetOptions{})
	if err == nil && (string(pod.UID) != m.UID || pod.Spec.NodeName != m.Node) {
		err = fmt.Errorf("it is no longer on node %s", m.Node)
	}
	if err != nil {
		return "", fmt.Errorf("move pod %s: %w", m.Pod, err)
	}
	job := &migration.PodMigrationJob{
		TypeMeta: metav1.TypeMeta{APIVersion: migration.Resource().GroupVersion().String(), Kind: "PodMigrationJob"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "make-room-",
			Annotations:  map[string]string{annotation.MigrationRoomKey: annotation.Encode(r.room)},
		},
		Spec: migration.PodMigrationJobSpec{
			PodRef: &corev1.ObjectReference{Namespace: namespace, Name: podName, UID: pod.UID},
		},
	}
	if err := convert.MoveTo(job, pod, m.Target); err != nil {
		return "", err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return "", fmt.Errorf("encode the job for pod %s: %w", m.Pod, err)
	}
	delete(object, "status")
	made, err := r.dynamic.Resource(migration.Resource()).Create(ctx, &unstructured.Unstructured{Object: object},
		metav1.CreateOptions{FieldManager: "tenon"})
	if err != nil {
		return "", fmt.Errorf("create the PodMigrationJob for pod %s: %w", m.Pod,
			rightMissing(err, "create on podmigrationjobs"))
	}
	r.say(made.GetName(), "podmigrationjob/%s moves %s from %s to %s", made.GetName(), m.Pod, m.Node, m.Target)
	return made.GetName(), nil
}

// report says what has become of the jobs, and returns how many have not ended.
func (r *roomMoves) report(ctx context.Context, jobs []string) (running int, err error) {
	for _, name := range jobs {
		found, err := r.dynamic.Resource(migration.Resource()).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.say(name, "podmigrationjob/%s is gone", name)
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read podmigrationjob %s: %w", name, err)
		}
		var job migration.PodMigrationJob
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &job); err != nil {
			return 0, fmt.Errorf("read podmigrationjob %s: %w", name, err)
		}
		s := &job.Status
		if line := strings.TrimSpace(string(s.Phase) + " " + reasonOf(s)); line != "" {
			r.say(name, "podmigrationjob/%s: %s", name, line)
		}
		if !s.Phase.IsFinal() {
			running++
		}
	}
	return running, nil
}

// nominate keeps the pods that need room nominated to their nodes: a failed attempt ends a nomination, and without one
// another pod could take what a pod that moved has left. It returns how many have no node.
func (r *roomMoves) nominate(ctx context.Context) (waiting int, err error) {
	for i, p := range r.plan.Placements {
		namespace, name, _ := strings.Cut(p.Pod, "/")
		pod, err := r.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read pod %s: %w", p.Pod, err)
		}
		if i == len(r.room.Pods) { // the first look at the pod
			r.room.Pods = append(r.room.Pods, annotation.RoomPod{
				Namespace: namespace, Name: name, UID: string(pod.UID), Node: p.Node,
			})
		}
		if pod.Spec.NodeName != "" {
			r.say(p.Pod, "%s is on %s", p.Pod, pod.Spec.NodeName)
			continue
		}
		waiting++
		if pod.Status.NominatedNodeName == p.Node {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"nominatedNodeName":%q}}`, pod.UID, p.Node)
		_, err = r.core.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "tenon"}, "status")
		if apierrors.IsInvalid(err) { // it has been bound since it was read
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("nominate pod %s to node %s: %w", p.Pod, p.Node,
				rightMissing(err, "patch on pods/status of namespace "+namespace))
		}
		r.say(p.Pod, "%s is nominated to %s", p.Pod, p.Node)
	}
	return waiting, nil
}

// say prints a line about an object, unless it was the last one.
func (r *roomMoves) say(object, format string, args ...any) {
	if line := fmt.Sprintf(format, args...); r.said[object] != line {
		r.said[object] = line
		_, _ = fmt.Fprintln(r.out, line)
	}
}
