package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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
