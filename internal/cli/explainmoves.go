package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// jobMove is a PodMigrationJob that has not ended, as an explanation shows it.
type jobMove struct {
	view.Eviction

	// MakesRoomOn is the node on which the explained pod gets what another pod leaves; "" where it is the explained pod
	// that moves.
	MakesRoomOn string `json:"makesRoomOn,omitempty"`
}

// addMoves adds the jobs that move the pod or make room for it and, for a pod that waits without one, the moves of
// which the scheduler says that the pod then fits. The answer is valid without them, so errors are ignored.
func (e *explanation) addMoves(ctx context.Context, answer *explained, pod *corev1.Pod) {
	_, _ = each(ctx, e.cluster, v1alpha1.Resource(), "", func(text []byte) (j v1alpha1.PodMigrationJob, err error) {
		err = json.Unmarshal(text, &j)
		return j, err
	}, func(j v1alpha1.PodMigrationJob) {
		if j.Status.Phase.IsFinal() {
			return
		}
		m := jobMove{Eviction: evictionOf(&j)}
		room, _, _ := annotation.ParseMigrationRoom(j.Annotations[annotation.MigrationRoomKey])
		for _, p := range room.Pods {
			if p.UID == string(pod.UID) {
				m.MakesRoomOn = p.Node
			}
		}
		r := j.Spec.PodRef
		if m.MakesRoomOn != "" || r != nil && r.Namespace == pod.Namespace && r.Name == pod.Name &&
			(r.UID == "" || r.UID == pod.UID) {
			answer.Jobs = append(answer.Jobs, m)
		}
	})
	slices.SortFunc(answer.Jobs, func(a, b jobMove) int { return strings.Compare(a.Name, b.Name) })
	if answer.State != view.Pending || answer.RootCause == nil || len(answer.Jobs) > 0 {
		return
	}
	request, asked := &view.RoomRequest{Pods: []string{answer.Pod.Pod}}, "pod/"+pod.Name
	if member, ok := convert.GangPod(pod); ok {
		request = &view.RoomRequest{Gang: member.Gang}
		asked = "gang/" + strings.TrimPrefix(member.Gang, pod.Namespace+"/")
	}
	room, err := askForRoom(ctx, e.flags, e.descheduler, request)
	if err != nil || !room.Found || len(room.Moves) == 0 {
		return
	}
	var moves []string
	for _, m := range room.Moves {
		moves = append(moves, fmt.Sprintf("%s from %s to %s", m.Pod, m.Node, m.Target))
	}
	answer.Fixes = append(answer.Fixes, view.Fix{
		Kind: view.FixRoom, Moves: room.Moves,
		Message: "move " + strings.Join(moves, ", ") + ": tenon make-room " + asked + " -n " + pod.Namespace,
	})
}

// moves shows the jobs and the fixes.
func (r *renderer) moves(p *explained) {
	for _, j := range p.Jobs {
		to := ""
		if j.To != "" {
			to = " to " + j.To
		}
		text := fmt.Sprintf("podmigrationjob/%s moves this pod%s", j.Name, to)
		if j.MakesRoomOn != "" {
			text = fmt.Sprintf("podmigrationjob/%s makes room on %s: it moves %s%s", j.Name, j.MakesRoomOn, j.Pod, to)
		}
		text += ", " + j.Phase
		if j.Reason != "" {
			text += ": " + j.Reason
		}
		r.line("  move", text)
	}
	var fixes []string
	for _, f := range p.Fixes {
		fixes = append(fixes, f.Message)
	}
	if s := p.Search; s != nil {
		switch {
		case s.Note != "":
			fixes = append(fixes, s.Note)
		case s.Exhausted:
			fixes = append(fixes, fmt.Sprintf("the search ended after %d trials; other changes may help too", s.Runs))
		case len(fixes) == 0:
			fixes = append(fixes, fmt.Sprintf("no single change found (%d tried)", s.Runs))
		}
	}
	r.line("  fix", fixes...)
}
