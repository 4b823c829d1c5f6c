package sim

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// seal writes records, one a second, as a scheduler does.
func seal(t *testing.T, began time.Time, records ...*journal.Record) (path string) {
	t.Helper()
	var out []byte
	sum := uint32(0)
	for i, r := range records {
		r.Gen, r.Time = uint64(i+1), began.Add(time.Duration(i)*time.Second)
		text, err := json.Marshal(r)
		testkit.Check(t, err)
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), text)
		out = fmt.Appendf(append(out, text[:len(text)-1]...), ",\"sum\":\"%08x\"}\n", sum)
	}
	path = filepath.Join(t.TempDir(), "journal.jsonl")
	testkit.Check(t, os.WriteFile(path, out, 0o600))
	return path
}

func began(t *testing.T) *journal.Record {
	t.Helper()
	cfg, err := app.DefaultConfig([]string{"tenon-scheduler"})
	testkit.Check(t, err)
	config, err := app.EncodeConfig(cfg)
	testkit.Check(t, err)
	return &journal.Record{Type: journal.SnapshotType, Snapshot: &journal.Snapshot{
		Version: journal.Version, Build: "v1", Config: config, Started: true,
	}}
}

func event(t *testing.T, op string, o journal.Object) *journal.Record {
	t.Helper()
	e, err := journal.Encode(op, o)
	testkit.Check(t, err)
	return &journal.Record{Type: journal.EventType, Event: e}
}

func put(t *testing.T, o journal.Object) *journal.Record {
	t.Helper()
	return event(t, journal.Put, o)
}

func podNamed(name string, options ...testobject.PodOption) *corev1.Pod {
	return testobject.Pod(name, append([]testobject.PodOption{
		testobject.UID(name), testobject.Scheduler("tenon-scheduler"), testobject.Both("cpu", "2"),
	}, options...)...)
}

func decide(pod, uid, node string) *journal.Record {
	return &journal.Record{Type: journal.DecisionType, Decision: &journal.Decision{
		Pod: pod, UID: uid, Profile: "tenon-scheduler", Node: node, Feasible: 1, Of: 1,
	}}
}

// TestAReplayEndsWithTheFirstDecisionThatIsNotTheRecordedOne: the second pod is recorded on a node that does not exist,
// which a replay until an earlier time does not reach.
func TestAReplayEndsWithTheFirstDecisionThatIsNotTheRecordedOne(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	path := seal(t, at,
		began(t), put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")), put(t, podNamed("a")),
		decide("default/a", "a", "n"), put(t, podNamed("b")), decide("default/b", "b", "m"))
	for name, c := range map[string]struct {
		until     time.Time
		events    int
		decisions int
		line      int // of the difference; 0 for none
	}{
		"the whole file":                   {time.Time{}, 3, 1, 6},
		"until the second pod":             {at.Add(4 * time.Second), 3, 1, 0},
		"until the first decision":         {at.Add(3 * time.Second), 2, 1, 0},
		"until before the first decision":  {at.Add(2 * time.Second), 2, 0, 0},
		"until a time after the last line": {at.Add(time.Hour), 3, 1, 6},
	} {
		got, err := Replay(t.Context(), path, c.until)
		testkit.Check(t, err)
		line := 0
		if got.Difference != nil {
			line = got.Difference.Line
		}
		if got.Events != c.events || got.Decisions != c.decisions || line != c.line {
			t.Errorf("%s: %d events, %d decisions, the difference is in line %d; want %+v\n%+v", name, got.Events,
				got.Decisions, line, c, got.Difference)
		}
	}
}

// TestAJournalOfAnotherKubernetesIsReplayed: a difference names both versions. Programs on 1.36 wrote none.
func TestAJournalOfAnotherKubernetesIsReplayed(t *testing.T) {
	t.Parallel()
	for recorded, want := range map[string]*Versions{
		"":                   {"v1.36 or earlier", version.Kubernetes()},
		"v1.38.0":            {"v1.38.0", version.Kubernetes()},
		version.Kubernetes(): nil,
	} {
		start := began(t)
		start.Snapshot.Kubernetes = recorded
		path := seal(t, time.Now(), start, put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")),
			put(t, podNamed("a")), decide("default/a", "a", "n"), put(t, podNamed("b")), decide("default/b", "b", "m"))
		got, err := Replay(t.Context(), path, time.Time{})
		testkit.Check(t, err)
		if got.Decisions != 1 || got.Difference == nil || !reflect.DeepEqual(got.Difference.Kubernetes, want) {
			t.Errorf("%q: %d decisions, then %+v", recorded, got.Decisions, got.Difference)
			continue
		}
		said := differentError{got.Difference}.Error()
		if named := strings.Contains(said, "kube-scheduler"); named != (want != nil) {
			t.Errorf("%q: %s", recorded, said)
		}
	}
}

// TestAReplaySeesWhatTheSchedulerWroteBeforeItsEventCame: a pod that must use Reservation r is decided between the
// write of this process and the event of the API server, or after an older event.
func TestAReplaySeesWhatTheSchedulerWroteBeforeItsEventCame(t *testing.T) {
	t.Parallel()
	at := func(version, node string) *reservation.Reservation {
		r, err := kube.ReadReservation(fmt.Appendf(nil, `{"kind":"Reservation","metadata":{"name":"r","uid":"r",`+
			`"resourceVersion":%q},"spec":{"owners":[{"labelSelector":{"matchLabels":{"app":"web"}}}],"template":{`+
			`"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}}},`+
			`"status":{"phase":"Available","nodeName":%q}}`, version, node))
		testkit.Check(t, err)
		if node == "" {
			r.Status.Phase = ""
		}
		return r
	}
	owner := put(t, podNamed("a", testobject.Label("app", "web"),
		testobject.Annotation(annotation.ReservationAffinityKey, `{"name":"r"}`)))
	written, stale := event(t, journal.Written, at("3", "n")), put(t, at("2", ""))
	for name, c := range map[string]struct {
		between []*journal.Record
		refused bool
	}{
		"no event yet":              {nil, true},
		"written":                   {[]*journal.Record{written}, false},
		"written, and its event":    {[]*journal.Record{written, put(t, at("3", "n"))}, false},
		"written, and an older one": {[]*journal.Record{written, stale}, false},
		"the event alone":           {[]*journal.Record{put(t, at("3", "n"))}, false},
		"ended before the status says so": {
			[]*journal.Record{written, event(t, journal.Ended, at("3", "n"))}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := seal(t, time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC), slices.Concat([]*journal.Record{
				began(t), put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")), put(t, at("1", "")),
				decide(convert.PendingReservePod(at("1", ""), "", false).Namespace+"/r", "r", "n"),
			}, c.between, []*journal.Record{owner, decide("default/a", "a", "n")})...)
			got, err := Replay(t.Context(), path, time.Time{})
			testkit.Check(t, err)
			if refused := got.Difference != nil && got.Difference.Pod == "default/a"; refused != c.refused ||
				!refused && got.Decisions != 2 {
				t.Errorf("got %+v, %+v; want the pod to be refused: %v", got, got.Difference, c.refused)
			}
		})
	}
}
