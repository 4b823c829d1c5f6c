package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

func roomAnswer() *view.RoomAnswer {
	return &view.RoomAnswer{
		Pods: []string{"default/train-0"},
		RoomPlan: view.RoomPlan{
			Found: true, Proven: true, MaxMoves: 2, Looked: 17,
			Moves: []view.RoomMove{
				{Pod: "default/web-1", UID: "uid-web-1", Node: "n1", Target: "n2", Cost: 5, Priority: 10},
			},
		},
		Placements: []view.WhatIfPlacement{{Pod: "default/train-0", Node: "n1"}},
		Movable:    3,
		Kept: []view.KeptPod{
			{Pod: "default/db-0", Node: "n1", Reasons: []view.KeptReason{
				{Code: "PDBViolation", Message: "PDBViolation: PodDisruptionBudget: db allows 0 disruptions, of which evictions in flight use 0"},
			}},
			{Pod: "default/job-0", Node: "n1", Reasons: []view.KeptReason{
				{Code: "BarePod", Message: "BarePod: the pod has no controller that would replace it", Final: true},
			}},
			{Pod: "default/job-1", Node: "n2", Reasons: []view.KeptReason{
				{Code: "BarePod", Message: "BarePod: the pod has no controller that would replace it", Final: true},
			}},
		},
	}
}

func TestPlansOfRoomAsGolden(t *testing.T) {
	t.Parallel()
	bounded, none, partly, there := roomAnswer(), roomAnswer(), roomAnswer(), roomAnswer()
	bounded.Proven, bounded.Kept = false, nil
	none.Found, none.Moves, none.Placements = false, nil, nil
	none.Unschedulable = []view.Pod{{RootCause: &why.Wire{Message: "0/2 nodes are available: 2 Insufficient gpu."}}}
	partly.Found, partly.Proven, partly.Moves, partly.MaxMoves, partly.Kept = false, false, nil, 4, nil
	there.Moves = nil
	var all []string
	for _, a := range []*view.RoomAnswer{roomAnswer(), bounded, none, partly, there} {
		all = append(all, drawRoom(a, 0))
	}
	golden(t, "makeroom.txt", strings.Join(all, "────\n"))
}

// roomWorld is an API server in which a job has moved its pod as soon as it exists, and a descheduler.
type roomWorld struct {
	t       *testing.T
	calls   []string
	job     *migration.PodMigrationJob
	moved   corev1.Pod
	waits   corev1.Pod
	verdict migration.PodMigrationJobStatus
	asked   view.RoomRequest
	answer  *view.RoomAnswer
	listed  []migration.PodMigrationJob
	// isBoundFirst: the pod that waits is bound between the look at it and its nomination.
	isBoundFirst bool
}

func (w *roomWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	const jobs = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
	body, _ := io.ReadAll(r.Body)
	var answer any
	if r.Method != http.MethodGet {
		w.calls = append(w.calls, r.Method+" "+r.URL.Path)
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /apis/v1/makeroom":
		if err := json.Unmarshal(body, &w.asked); err != nil {
			w.t.Error(err)
		}
		answer = w.answer
	case "GET /api/v1/namespaces/default/pods/web-1":
		answer = w.moved
	case "GET /api/v1/namespaces/default/pods/train-0":
		if w.job != nil && w.verdict.Phase == migration.PodMigrationJobSucceeded {
			w.waits.Spec.NodeName = "n1"
		}
		answer = w.waits
	case "PATCH /api/v1/namespaces/default/pods/train-0/status":
		if w.isBoundFirst {
			w.waits.Spec.NodeName = "n1"
			rw.WriteHeader(http.StatusUnprocessableEntity)
			answer = metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
			}
			break
		}
		if want := `"nominatedNodeName":"n1"`; !strings.Contains(string(body), want) {
			w.t.Errorf("patch %s does not contain %s", body, want)
		}
		w.waits.Status.NominatedNodeName = "n1"
		answer = w.waits
	case "POST " + jobs:
		w.job = &migration.PodMigrationJob{}
		if err := json.Unmarshal(body, w.job); err != nil {
			w.t.Error(err)
		}
		w.job.Name, w.job.Status = "make-room-x", w.verdict
		answer = w.job
	case "GET " + jobs:
		answer = map[string]any{
			"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJobList", "items": w.listed,
		}
	case "GET " + jobs + "/make-room-x":
		answer = w.job
	default:
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(answer); err != nil {
		w.t.Error(err)
	}
}

func newRoomWorld(t *testing.T, verdict migration.PodMigrationJobStatus) (*roomWorld, []string) {
	w := &roomWorld{
		t: t, verdict: verdict, answer: roomAnswer(), moved: pod("web-1", "LSR", "2", "n1", ""),
		waits: pod("train-0", "LSR", "2", "", ""),
	}
	w.moved.UID, w.waits.UID = "uid-web-1", "uid-train-0"
	for _, p := range []*corev1.Pod{&w.moved, &w.waits} {
		p.APIVersion, p.Kind = "v1", "Pod"
	}
	w.moved.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"0-1"}`
	api := httptest.NewServer(w)
	t.Cleanup(api.Close)
	return w, []string{
		"make-room", "pod/train-0", "--kubeconfig", kubeconfig(t, api.URL), "--descheduler", api.URL,
	}
}

func TestMakeRoomForAPodThatIsBoundMeanwhile(t *testing.T) {
	w, args := newRoomWorld(t, migration.PodMigrationJobStatus{Phase: migration.PodMigrationJobSucceeded})
	w.isBoundFirst = true
	code, out, errOut := run(t, "tenon", args...)
	if code != ExitOK || !strings.Contains(out, "default/train-0 is on n1") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}

func TestMakeRoomMovesPodsAndWaits(t *testing.T) {
	w, args := newRoomWorld(t, migration.PodMigrationJobStatus{Phase: migration.PodMigrationJobSucceeded})
	code, out, errOut := run(t, "tenon", args...)
	for _, want := range []string{
		"Room for default/train-0 on n1:", "default/train-0 is nominated to n1",
		"podmigrationjob/make-room-x moves default/web-1 from n1 to n2", "podmigrationjob/make-room-x: Succeeded",
		"default/train-0 is on n1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if code != ExitOK || strings.Contains(errOut, "error") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	want := []string{
		"POST /apis/v1/makeroom", "PATCH /api/v1/namespaces/default/pods/train-0/status",
		"POST /apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs",
	}
	if diff := cmp.Diff(want, w.calls); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if ref := w.job.Spec.PodRef; ref.UID != "uid-web-1" || w.job.Spec.Mode != migration.ReservationFirst {
		t.Errorf("the job moves %v by %s", ref, w.job.Spec.Mode)
	}
	var made struct{ Spec reservation.ReservationSpec }
	testkit.Check(t, json.Unmarshal(w.job.Spec.ReservationOptions.Template.Raw, &made))
	if got := made.Spec.Template.Spec; got.NodeName != "n2" || len(got.Containers) != 1 {
		t.Errorf("the reservation is on %q with %d containers", got.NodeName, len(got.Containers))
	}
	room := `{"pods":[{"namespace":"default","name":"train-0","uid":"uid-train-0","node":"n1"}]}`
	if got := w.job.Annotations[annotation.MigrationRoomKey]; got != room {
		t.Errorf("the job makes room for %s, want %s", got, room)
	}
	if _, kept := made.Spec.Template.Annotations[annotation.ResourceStatusKey]; kept {
		t.Error("the reservation asks for the CPUs of the old node")
	}
}

func TestMakeRoomSaysWhatWentWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		verdict migration.PodMigrationJobStatus
		change  func(w *roomWorld)
		args    []string
		code    int
		want    string
		writes  int
	}{
		"a dry run writes nothing": {args: []string{"--dry-run"}, want: "MOVE", writes: 1},
		"json":                     {args: []string{"--dry-run", "-o", "json"}, want: `"kind": "RoomPlan"`, writes: 1},
		"a job that fails": {
			verdict: migration.PodMigrationJobStatus{
				Phase: migration.PodMigrationJobFailed, Reason: "ForbiddenMigratePod", Message: "CapNode: too many",
			},
			code: ExitUnhealthy, writes: 3, want: "all moves have ended, and 1 pod still has no node",
		},
		"a message that begins with the reason is printed once": {
			verdict: migration.PodMigrationJobStatus{
				Phase: migration.PodMigrationJobFailed, Reason: "RateLimited", Message: "RateLimited: 1 of 1",
			},
			code: ExitUnhealthy, writes: 3, want: "podmigrationjob/make-room-x: Failed RateLimited: 1 of 1\n",
		},
		"no set helps": {
			change: func(w *roomWorld) { w.answer.Found, w.answer.Moves = false, nil },
			code:   ExitUnhealthy, writes: 1, want: "no set of at most 2 moves helps",
		},
		"a search that was cut short": {
			change: func(w *roomWorld) {
				w.answer.Found, w.answer.Moves, w.answer.Proven, w.answer.Bound = false, nil, false, "1.5s"
			},
			code: ExitUnhealthy, writes: 1, want: "helps (bound: 1.5s)",
		},
		"the pod has gone from its node": {
			change: func(w *roomWorld) { w.moved.UID = "another" }, code: ExitUnexpected, writes: 2,
			want: "move pod default/web-1: it is no longer on node n1",
		},
		"output without a dry run": {args: []string{"-o", "json"}, code: ExitUsage, want: "-o needs --dry-run"},
	} {
		t.Run(name, func(t *testing.T) {
			w, args := newRoomWorld(t, tt.verdict)
			if tt.change != nil {
				tt.change(w)
			}
			code, out, errOut := run(t, "tenon", append(args, tt.args...)...)
			if code != tt.code || !strings.Contains(out+errOut, tt.want) || len(w.calls) != tt.writes {
				t.Errorf("exit code %d, %d writes %v, want %d, %d; output %s%s, want %q", code, len(w.calls), w.calls,
					tt.code, tt.writes, out, errOut, tt.want)
			}
		})
	}
	if code, _, errOut := run(t, "tenon", "make-room"); code != ExitUsage || !strings.Contains(errOut, "pod/NAME") {
		t.Errorf("without a name: exit code %d, %s", code, errOut)
	}
}

func TestMakeRoomForAGangAsksByItsName(t *testing.T) {
	w, args := newRoomWorld(t, migration.PodMigrationJobStatus{})
	args[1] = "gang/train"
	run(t, "tenon", append(args, "--dry-run", "--max-moves", "4")...)
	if diff := cmp.Diff(view.RoomRequest{Gang: "default/train", MaxMoves: 4}, w.asked); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
}
