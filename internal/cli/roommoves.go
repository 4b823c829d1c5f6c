package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

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
		err = fmt.Errorf("it is not on node %s any more", m.Node)
	}
	if err != nil {
		return "", fmt.Errorf("move pod %s: %w", m.Pod, err)
	}
	job := &migration.PodMigrationJob{
		TypeMeta: metav1.TypeMeta{APIVersion: migration.Resource().GroupVersion().String(), Kind: "PodMigrationJob"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "make-room-", Annotations: map[string]string{annotation.MigrationRoomKey: r.room.String()},
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
