package cli

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
)

func TestExplainNamesMoves(t *testing.T) {
	job := func(name, pod string, status migration.PodMigrationJobStatus, room string) migration.PodMigrationJob {
		return migration.PodMigrationJob{
			TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.koordinator.sh/v1alpha1", Kind: "PodMigrationJob"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				annotation.MigrationRoomKey: room,
			}},
			Spec:   migration.PodMigrationJobSpec{PodRef: &corev1.ObjectReference{Namespace: "default", Name: pod}},
			Status: status,
		}
	}
	room := annotation.Encode(annotation.MigrationRoom{Pods: []annotation.RoomPod{{
		Namespace: "default", Name: "train-0", UID: "uid-train-0", Node: "n1",
	}}})
	running := migration.PodMigrationJobStatus{Phase: migration.PodMigrationJobRunning, NodeName: "n2"}
	const fixed = "move default/web-1 from n1 to n2: tenon make-room pod/train-0 -n default"
	for name, tt := range map[string]struct {
		jobs   []migration.PodMigrationJob
		change func(*roomWorld)
		pod    string
		want   string // a line; "" for none
		asks   bool
	}{
		"moves that were verified are a fix": {pod: "train-0", want: "  fix           " + fixed, asks: true},
		"moves that do not help are not": {
			change: func(w *roomWorld) { w.answer.Found = false }, pod: "train-0", asks: true,
		},
		"a pod that fits without a move has no fix": {
			change: func(w *roomWorld) { w.answer.Moves = nil }, pod: "train-0", asks: true,
		},
		"a pod that a job makes room for": {
			jobs: []migration.PodMigrationJob{job("j", "web-1", running, room)}, pod: "train-0",
			want: "  move          podmigrationjob/j makes room on n1: it moves default/web-1 to n2, Running",
		},
		"a pod that a job moves": {
			jobs: []migration.PodMigrationJob{job("j", "web-1", migration.PodMigrationJobStatus{
				Reason: "CapNode", Message: "CapNode: node n1 has 2 of 2",
			}, "")}, pod: "web-1", change: func(w *roomWorld) { w.moved.Spec.NodeName = "" },
			want: "  move          podmigrationjob/j moves this pod, Pending: CapNode: node n1 has 2 of 2",
		},
		"a job that has ended": {
			jobs: []migration.PodMigrationJob{job("j", "web-1", migration.PodMigrationJobStatus{
				Phase: migration.PodMigrationJobFailed,
			}, room)}, pod: "train-0", change: func(w *roomWorld) { w.answer.Found = false }, asks: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, args := newRoomWorld(t, migration.PodMigrationJobStatus{})
			w.listed = tt.jobs
			if tt.change != nil {
				tt.change(w)
			}
			_, out, errOut := run(t, "tenon", append([]string{"explain", tt.pod}, args[2:]...)...)
			var lines []string
			for line := range strings.Lines(out) {
				if line = strings.TrimRight(line, "\n"); strings.HasPrefix(line, "  fix ") ||
					strings.HasPrefix(line, "  move ") {
					lines = append(lines, line)
				}
			}
			if got := strings.Join(lines, "\n"); got != tt.want {
				t.Errorf("got %q, want %q; output\n%s%s", got, tt.want, out, errOut)
			}
			if asked := slices.Contains(w.calls, "POST /apis/v1/makeroom"); asked != tt.asks {
				t.Errorf("the descheduler was asked: %v, want %v", asked, tt.asks)
			}
		})
	}
}
