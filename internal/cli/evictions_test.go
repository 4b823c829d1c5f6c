package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// evictionServer is an API server with five jobs, and a descheduler.
func evictionServer(t *testing.T) *httptest.Server {
	t.Helper()
	job := func(name, pod, annotations, status string, old time.Duration) string {
		return fmt.Sprintf(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJob","metadata":`+
			`{"name":%q,"creationTimestamp":%q,"annotations":{%s}},"spec":{"podRef":`+
			`{"namespace":"default","name":%q}},`+
			`"status":{%s}}`, name, time.Now().Add(-old).UTC().Format(time.RFC3339), annotations, pod, status)
	}
	const from = `"tenon.sh/migration-start":"{\"time\":\"2026-11-26T12:00:00Z\",\"node\":\"%s\"}"`
	jobs := job("refused", "db-0", `"tenon.sh/migration-plugin":"default/RemoveDuplicates"`,
		`"phase":"Failed","reason":"ForbiddenMigratePod","message":"BarePod: the pod has no controller"`, 2*time.Hour) +
		"," + job("moved", "web-0", fmt.Sprintf(from, "n0")+`,"tenon.sh/migration-reason":"node n0 is full"`,
		`"phase":"Succeeded","status":"Complete","nodeName":"n1","podRef":{"namespace":"default","name":"web-9"},`+
			`"conditions":[{"type":"Eviction","status":"True","reason":"EvictComplete",`+
			`"lastProbeTime":"2026-11-26T12:00:05Z"}]`, 3*time.Hour) +
		"," + job("waits", "web-1", "", `"phase":"Pending","reason":"CapNode","message":"CapNode: node n0 has 2 of 2"`,
		time.Hour) + "," + job("runs", "web-2", fmt.Sprintf(from, "n2"), `"phase":"Running",`+
		`"status":"ReservationScheduled",`+
		`"conditions":[{"type":"ReservationCreated","status":"True"},{"type":"ReservationScheduled","status":"False",`+
		`"reason":"Unschedulable","message":"Insufficient quotas"}]`, 30*time.Minute) + "," +
		job("paused", "web-3", "", `"phase":"Pending","status":"Paused","conditions":`+
			`[{"type":"Paused","status":"True","message":"the job takes no step"}]`, 20*time.Minute)
	answer := view.EvictionLimits{
		Limits: []view.LimitUse{
			{Code: "CapNode", Subject: "n0", Have: 2, Limit: 2},
			{Code: "CapWorkload", Subject: "Deployment default/web", Have: 1, Limit: 2, Window: "5m0s"},
			{Code: "RateLimited", Subject: "cluster", Have: 1, Limit: 1},
		},
		Movable: roomAnswer().Movable, Kept: roomAnswer().Kept,
		Round: &view.Round{Time: time.Now().Add(-14 * time.Second), Accepted: 1, Refused: []view.RefusedMove{
			{KeptPod: roomAnswer().Kept[0], Plugin: "default/PodLifeTime", Wish: "it is too old"},
			{KeptPod: roomAnswer().Kept[2], Plugin: "default/PodLifeTime", Wish: "it is too old"},
			{KeptPod: roomAnswer().Kept[0], Plugin: "default/MakeRoom", Wish: "it makes room for pod default/train-0"},
		}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path {
		case "GET /apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs":
			_, _ = fmt.Fprintf(w, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJobList",`+
				`"items":[%s]}`, jobs)
		case "GET /api/v1/events":
			if err := json.NewEncoder(w).Encode(pastEvents()); err != nil {
				t.Error(err)
			}
		case "POST /apis/v1/evictions":
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// pastTime is some minutes after the eviction by the job that has moved its pod.
var pastTime = time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)

// pastEvents are Events about evictions, one of each kind, and some that are none.
func pastEvents() *corev1.EventList {
	out := &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
	add := func(reason, kind, pod, message string, ago time.Duration) *corev1.Event {
		out.Items = append(out.Items, corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("e", len(out.Items))}, Reason: reason,
			InvolvedObject: corev1.ObjectReference{
				Kind: kind, Namespace: "default", Name: pod, UID: types.UID(pod),
			},
			Message: message, EventTime: metav1.NewMicroTime(pastTime.Add(-ago)),
		})
		return &out.Items[len(out.Items)-1]
	}
	add("Preempted", "Pod", "low", "Preempted by pod default/high on node n0", 10*time.Minute)
	add("Preempted", "Pod", "low", "Preempted by pod default/high on node n0", 9*time.Minute)
	add("Preempted", "Pod", "long-ago", "Preempted by pod default/high on node n0", 61*time.Minute)
	old := add("Evicted", "Pod", "large", "The node was low on resource: memory.", 2*time.Hour)
	old.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(pastTime.Add(-8 * time.Minute))}
	add("GangInterrupted", "Pod", "member-0", "evicted: the scheduler stopped", 7*time.Minute)
	add("GangInterrupted", "Pod", "member-1", "not evicted: the budget allows none", 7*time.Minute)
	add("QuotaRevoked", "Pod", "lent", "evicted: quota b needs what quota a uses", 6*time.Minute)
	add("QuotaRevoked", "Pod", "kept", "the eviction was refused: quota b needs what quota a uses", 6*time.Minute)
	add("BestEffortEvicted", "Pod", "batch", "evicted: the node uses 75 % of its memory", 5*time.Minute)
	add("TaintManagerEviction", "Pod", "tainted", "Marking for deletion Pod default/tainted", 4*time.Minute)
	add("TaintManagerEviction", "Pod", "saved", "Cancelling deletion of Pod default/saved", 4*time.Minute)
	add("PodEvicted", "Pod", "web-0", "evicted by PodMigrationJob moved", 3*time.Minute)
	add("GangPreempted", "PodGroup", "g", "pod default/low of gang default/g is evicted", 3*time.Minute)
	return out
}

// Who was evicted is counted once, by all programs that say so, and not who was only threatened.
func TestPastEvictions(t *testing.T) {
	s := evictionServer(t)
	flags, path := genericclioptions.NewConfigFlags(true), kubeconfig(t, s.URL)
	flags.KubeConfig = &path
	c, err := connect(flags)
	testkit.Check(t, err)
	all, unread, err := c.past(t.Context(), pastTime)
	testkit.Check(t, err)
	testkit.Check(t, unread)
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%s %s by %s: %s", e.Time.Format("04:05"), e.Pod, e.By, e.Why))
	}
	if diff := cmp.Diff([]string{
		"26:00 default/tainted by taint: Marking for deletion Pod default/tainted",
		"25:00 default/batch by agent: the node uses 75 % of its memory",
		"24:00 default/lent by quota: quota b needs what quota a uses",
		"23:00 default/member-0 by gang: the scheduler stopped",
		"22:00 default/large by kubelet: The node was low on resource: memory.",
		"20:00 default/low by preemption: Preempted by pod default/high on node n0",
		"00:05 default/web-0 by user: node n0 is full",
	}, got); diff != "" {
		t.Errorf("evictions (-want +got):\n%s", diff)
	}
	code, out, errOut := run(t, "tenon", "evictions", "--past", "--kubeconfig", path)
	if code != ExitOK || out != "no pod was evicted within the last hour\n" {
		t.Errorf("now: exit code %d\n%s%s", code, out, errOut)
	}
}

func TestAPastEvictionWithoutAReasonNamesItsJob(t *testing.T) {
	at := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/events" {
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"EventList","items":[]}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJobList",`+
			`"items":[{"metadata":{"name":"by-hand"},"spec":{"podRef":{"namespace":"default","name":"db-0"}},`+
			`"status":{"phase":"Succeeded","conditions":[{"type":"Eviction","status":"True","reason":"EvictComplete",`+
			`"lastProbeTime":%q}]}}]}`, at)
	}))
	t.Cleanup(s.Close)
	code, out, errOut := run(t, "tenon", "evictions", "--past", "--kubeconfig", kubeconfig(t, s.URL))
	if code != ExitOK || !strings.Contains(out, "user  PodMigrationJob by-hand\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}

// Without the right to list Events, what PodMigrationJobs say is shown, and which right is missing.
func TestPastEvictionsWithoutEvents(t *testing.T) {
	other := evictionServer(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/events" {
			other.Config.Handler.ServeHTTP(w, r)
			return
		}
		if got := r.URL.Query().Get("fieldSelector"); !strings.Contains(got, "reason!=Scheduled") {
			t.Errorf("Events are selected by %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
			`"message":"events is forbidden: User x cannot list"}`))
	}))
	t.Cleanup(s.Close)
	path := kubeconfig(t, s.URL)
	code, out, errOut := run(t, "tenon", "evictions", "--past", "--kubeconfig", path)
	const warning = "\nwarning: only PodMigrationJobs are shown: list on events is missing"
	if code != ExitOK || !strings.Contains(errOut, warning) {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	code, _, errOut = run(t, "tenon", "evictions", "--past", "--descheduler", s.URL, "--kubeconfig", path)
	if code != ExitUsage || !strings.Contains(errOut, "--past and --descheduler exclude each other") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}

func TestEvictionsAsGolden(t *testing.T) {
	s := evictionServer(t)
	code, out, errOut := run(t, "tenon", "evictions", "--kubeconfig", kubeconfig(t, s.URL), "--descheduler", s.URL)
	if code != ExitOK {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	golden(t, "evictions.txt", out)
	code, out, errOut = run(t, "tenon", "evictions", "-o", "json", "--kubeconfig", kubeconfig(t, s.URL),
		"--descheduler", s.URL)
	var answer struct {
		Kind string
		Jobs []view.Eviction
		view.EvictionLimits
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != ExitOK {
		t.Fatalf("exit code %d, %v\n%s", code, err, errOut)
	}
	if answer.Kind != "Evictions" || len(answer.Jobs) != 5 || answer.Jobs[1].Plugin != "default/RemoveDuplicates" ||
		len(answer.Limits) != 3 || len(answer.Kept) != 3 {
		t.Errorf("got %s", out)
	}
	evictedAt := time.Date(2026, 11, 26, 12, 0, 5, 0, time.UTC)
	for _, j := range answer.Jobs {
		switch moved := j.Evicted != nil; {
		case moved != (j.Name == "moved"):
			t.Errorf("job %s: evicted at %v", j.Name, j.Evicted)
		case !moved:
		case j.Evicted.Before(evictedAt), j.Evicted.Sub(evictedAt) >= time.Second, j.Wish != "node n0 is full":
			t.Errorf("job %s: evicted at %v because %q", j.Name, j.Evicted, j.Wish)
		}
	}
}

func TestEvictionsWithoutDescheduler(t *testing.T) {
	s := evictionServer(t)
	code, _, errOut := run(t, "tenon", "evictions", "--kubeconfig", kubeconfig(t, s.URL), "--descheduler", "localhost")
	if code != ExitUsage {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}
