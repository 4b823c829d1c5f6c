package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var start = time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)

// lines writes records to a ring and returns what is in its file. A record without a time is of the start.
func lines(t testing.TB, records ...*Record) []byte {
	t.Helper()
	folder := t.TempDir()
	r, err := openRing(folder, ringSize, fileSize)
	testkit.Check(t, err)
	testkit.Check(t, r.begin(start))
	w := writer{ring: r}
	for i, record := range records {
		record.Gen = uint64(i + 1)
		if record.Time.IsZero() {
			record.Time = start
		}
		testkit.Check(t, w.line(written{Record: record, Event: eventOf(record)}))
	}
	testkit.Check(t, r.end())
	files, err := Files(folder)
	testkit.Check(t, err)
	text, err := os.ReadFile(files[0])
	testkit.Check(t, err)
	return text
}

// eventOf returns the event of a record as the recorder has it before it is written.
func eventOf(r *Record) *writtenEvent {
	if r.Event == nil {
		return nil
	}
	e := &writtenEvent{Event: r.Event}
	if len(r.Event.Object) > 0 {
		e.Object, _ = r.Event.Decode() // nil for one that no reader can decode
	}
	return e
}

// promising is a decision by which a claim gets devices.
func promising(p Promise) *Record {
	return &Record{Type: DecisionType, Decision: &Decision{Pod: "a/p", UID: "p", Claims: []Promise{p}}}
}

// claim is a claim with a device, and with what a journal does not have of one.
func claim() *resourcev1.ResourceClaim {
	config := resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
		Driver: "x", Parameters: runtime.RawExtension{Raw: []byte(`"secret"`)},
	}}
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "c", ResourceVersion: "7"},
	}
	c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: config}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "x", Pool: "n", Device: "d"}},
		Config:  []resourcev1.DeviceAllocationConfiguration{{DeviceConfiguration: config}},
	}}
	c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
		Driver: "x", Conditions: []metav1.Condition{{Type: "Attached"}},
		Data:        &runtime.RawExtension{Raw: []byte(`"secret"`)},
		NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: "secret"},
	}}
	return c
}

func sample(t testing.TB) []*Record {
	t.Helper()
	pod, err := Encode(Put, object.Pod("a", object.Both("cpu", "2")))
	testkit.Check(t, err)
	written, err := Encode(Written, claim())
	testkit.Check(t, err)
	return []*Record{
		{Type: SnapshotType, Snapshot: &Snapshot{Version: Version, Build: "v1", Config: []byte(`{}`)}},
		{Type: EventType, Event: pod},
		{Type: DecisionType, Decision: &Decision{
			Pod: "default/a", UID: "a", Node: "n", Samples: map[int][]string{1: {"n"}},
			Claims: promises([]*resourcev1.ResourceClaim{claim()}),
		}},
		{Type: EventType, Event: written},
	}
}

// read returns all records, and the first error but io.EOF.
func read(text []byte) (all []*Record, err error) {
	r := NewReader(bytes.NewReader(text))
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, record)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	want := sample(t)
	got, err := read(lines(t, want...))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestAFileThatIsNotWhatWasWrittenIsRefused(t *testing.T) {
	t.Parallel()
	whole := lines(t, sample(t)...)
	other := sample(t)
	other[0].Snapshot.Version = 7
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"an empty file": {nil, "line 1: the file is empty: a journal begins with a snapshot"},
		"a file that is cut in the middle of a line": {
			whole[:len(whole)-40], "line 4: the line is cut: the file does not end with a whole record",
		},
		"another version": {
			lines(t, other...), `line 1: snapshot.version: 7 is not supported, want 2: use the tenon of the version ` +
				`that wrote the journal, "v1"`,
		},
		"a node that was edited": {
			bytes.Replace(whole, []byte(`"node":"n"`), []byte(`"node":"m"`), 1),
			"line 3: sum: ", // the checksum of the line itself follows
		},
		"a line that was removed": {
			append(bytes.SplitAfter(whole, []byte("\n"))[0], bytes.SplitAfter(whole, []byte("\n"))[2]...),
			"was changed or removed",
		},
		"a foreign record": {
			append(bytes.Clone(whole), "{\"level\":\"info\"}\n"...),
			"line 5: not a record of a journal: it does not end with a field sum",
		},
		"a file of another program": {[]byte("kind: Pod\n"), "line 1: not a record of a journal: it does not end with"},
		"no snapshot at the begin": {
			lines(t, sample(t)[1:]...), "line 1: t: the first record is of type event, want snapshot",
		},
		"a second snapshot": {
			lines(t, append(sample(t), sample(t)[0])...), "line 5: t: a snapshot is only allowed in the first line",
		},
		"a type of a later version": {
			lines(t, sample(t)[0], &Record{Type: "plan", Decision: &Decision{}}),
			`line 2: t: "plan" is not a record of a journal, want snapshot, event or decision`,
		},
		"two records in one line": {
			lines(t, sample(t)[0], &Record{Type: EventType, Event: &Event{Op: Put}, Decision: &Decision{}}),
			"line 2: t: a record of type event must have the field event and no other of them",
		},
		"an operation of a later version": {
			lines(t, sample(t)[0], &Record{Type: EventType, Event: &Event{Op: "patch"}}),
			`line 2: event.op: "patch" is not known, want one of put, change, delete, release`,
		},
		"a promise to no claim": {
			lines(t, sample(t)[0], promising(Promise{Claim: "c", UID: "c"})),
			`line 2: decision.claims[0].claim: "c" is not NAMESPACE/NAME`,
		},
		"a promise to a claim without a UID": {
			lines(t, sample(t)[0], promising(Promise{Claim: "a/c"})),
			"line 2: decision.claims[0].uid: must not be empty",
		},
		"a promise of nothing": {
			lines(t, sample(t)[0], promising(Promise{Claim: "a/c", UID: "c"})),
			"line 2: decision.claims[0].allocation: must be set",
		},
		"a promise of nothing to a pod that is reserved": {
			lines(t, &Record{Type: SnapshotType, Snapshot: &Snapshot{
				Version: Version, Reserved: []Decision{*promising(Promise{Claim: "a/c", UID: "c"}).Decision},
			}}),
			"line 1: snapshot.reserved[0].claims[0].allocation: must be set",
		},
		"a decision about no pod": {
			lines(t, sample(t)[0], &Record{Type: DecisionType, Decision: &Decision{}}),
			"line 2: decision.uid: must not be empty",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(c.text)
			var bad *BadLine
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestAnEventWithoutAnObjectOfItsKindIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event Event
		want  string
	}{
		"a kind that schedulers do not read": {Event{Kind: "Secret"}, `event.kind: "Secret" is not a kind that`},
		"an object that is not JSON":         {Event{Kind: "Pod", Object: []byte("[]")}, "event.object: json"},
		"an object without a name":           {Event{Kind: "Pod", Object: []byte("{}")}, "metadata.name: must not be"},
		"a field that is not hidden": {
			Event{
				Kind: "PodGroup", Object: []byte(`{"metadata":{"name":"g"}}`),
				Hidden: map[string]json.RawMessage{"Spec": []byte("1")},
			},
			`event.hidden: PodGroup has no field "Spec"`,
		},
		"a report that is missing": {
			Event{Op: Put, Kind: "NodeMetric", Object: []byte(`{"Name":"n","name":"n","metadata":{"name":"n"}}`)},
			"event.object: Report: must be set",
		},
	} {
		if _, err := c.event.Decode(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestObjectsKeepWhatTheirJSONFormLacks(t *testing.T) {
	t.Parallel()
	for _, want := range []Object{
		&v1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "g"}, Basic: true, Parent: "p", Unread: map[string]string{"a": "b"},
		},
		&kube.NodeMetric{
			ObjectMeta: metav1.ObjectMeta{Name: "n"}, Report: &load.Report{
				Updated: start, Use: &amount.Pair{1},
				Pods: map[string]load.PodUse{"a/b": {Use: amount.Pair{2}, Prod: true}},
			},
		},
	} {
		e, err := Encode(Put, want)
		testkit.Check(t, err)
		got, err := e.Decode()
		if !reflect.DeepEqual(got, want) || err != nil {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestAPodIsRecordedWithoutWhatRunsInIt(t *testing.T) {
	t.Parallel()
	pod := object.Pod("a", object.Both("cpu", "2"))
	pod.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": "secret", "example.com/token": "secret",
		"scheduling.koordinator.sh/resource-spec": "{}",
	}
	pod.Spec.ServiceAccountName = "secret"
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "secret"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "secret"},
	}}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "i", Args: []string{"secret"}}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Env, c.Command = []corev1.EnvVar{{Name: "KEY", Value: "secret"}}, []string{"secret"}
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "secret"}}
	}
	e, err := Encode(Put, pod)
	testkit.Check(t, err)
	if strings.Contains(string(e.Object), "secret") || !strings.Contains(string(e.Object), "resource-spec") ||
		!strings.Contains(string(e.Object), `"cpu":"2"`) {
		t.Errorf("got %s", e.Object)
	}
}

func TestAClaimIsRecordedWithoutTheConfigurationOfItsDriver(t *testing.T) {
	t.Parallel()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	class.Spec.Config = []resourcev1.DeviceClassConfiguration{
		{DeviceConfiguration: claim().Spec.Devices.Config[0].DeviceConfiguration},
	}
	for o, want := range map[Object][]string{
		claim(): {`"device":"d"`, `"resourceVersion":"7"`, `"type":"Attached"`}, class: {`"name":"c"`},
	} {
		e, err := Encode(Put, o)
		testkit.Check(t, err)
		for _, kept := range want {
			if text := string(e.Object); strings.Contains(text, "secret") || !strings.Contains(text, kept) {
				t.Errorf("got %s, want %s", text, kept)
			}
		}
	}
	if text, err := json.Marshal(promises([]*resourcev1.ResourceClaim{claim(), {}})); err != nil ||
		strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"allocation":null`) {
		t.Errorf("got %s, %v", text, err)
	}
}

// TestOnlyAnnotationsOfSchedulingAreRecorded for every kind that has some.
func TestOnlyAnnotationsOfSchedulingAreRecorded(t *testing.T) {
	t.Parallel()
	for kind, empty := range kinds() {
		o := empty()
		o.SetName("a")
		o.SetAnnotations(map[string]string{
			corev1.LastAppliedConfigAnnotation: "secret", "example.com/token": "secret",
			"scheduling.koordinator.sh/a": "kept",
		})
		e, err := Encode(Put, o)
		testkit.Check(t, err)
		if text := string(e.Object); strings.Contains(text, "secret") || !strings.Contains(text, "kept") {
			t.Errorf("%s: %s", kind, text)
		}
		if len(o.GetAnnotations()) != 3 {
			t.Errorf("%s: the scheduler's object has changed", kind)
		}
	}
}

// TestTheLastFileIsReadInWholeLines while it is written.
func TestTheLastFileIsReadInWholeLines(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if name, _, text, err := ReadFile(folder, ""); name != "" || text != nil || err != nil {
		t.Errorf("an empty folder: got %q, %q, %v", name, text, err)
	}
	for name, text := range map[string]string{"journal-1.jsonl": "old\n", "journal-2.jsonl": "a\nb\ncut"} {
		testkit.Check(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	for wanted, want := range map[string]string{
		"":                   "journal-2.jsonl after journal-1.jsonl: a\nb\n",
		"journal-2.jsonl":    "journal-2.jsonl after journal-1.jsonl: a\nb\n",
		"journal-1.jsonl":    "journal-1.jsonl after : old\n",
		"journal-0.jsonl":    " after : ",
		"../journal-1.jsonl": " after : ",
	} {
		name, earlier, text, err := ReadFile(folder, wanted)
		if got := fmt.Sprintf("%s after %s: %s", name, earlier, text); got != want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", wanted, got, err, want)
		}
	}
}

func TestARingKeepsItsSizeAndTheNewestFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for round := range 3 {
		r, err := openRing(folder, 2000, 500)
		testkit.Check(t, err)
		for i := range 10 {
			testkit.Check(t, r.begin(start.Add(time.Duration(round*10+i))))
			for !r.isLong(0) {
				testkit.Check(t, r.write([]byte(`{"filler":"`+strings.Repeat("x", 60)+`"}`)))
			}
		}
		testkit.Check(t, r.end())
	}
	files, err := Files(folder)
	testkit.Check(t, err)
	size := int64(0)
	for _, file := range files {
		info, err := os.Stat(file)
		testkit.Check(t, err)
		size += info.Size()
	}
	last := filepath.Base(files[len(files)-1])
	want := fmt.Sprintf("journal-%020d.jsonl", start.Add(29).UnixNano())
	if size > 2000 || size < 1200 || last != want {
		t.Errorf("got %d bytes in %v, want at most 2000 and the last %s", size, files, want)
	}
	r, err := openRing(t.TempDir(), 100, 50)
	testkit.Check(t, err)
	testkit.Check(t, r.begin(start))
	if err := r.write(bytes.Repeat([]byte("x"), 200)); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
}

// FuzzReader reads any bytes, and what a writer makes of the records in them is read again as the same records.
func FuzzReader(f *testing.F) {
	whole := lines(f, sample(f)...)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := read(text)
		for _, record := range all {
			if record.Event != nil {
				_, _ = record.Event.Decode()
			}
		}
		if len(all) == 0 {
			return
		}
		first := lines(t, all...)
		got, err := read(first)
		if err != nil || len(got) != len(all) {
			t.Fatalf("got %d records, %v, of %d", len(got), err, len(all))
		}
		if again := lines(t, got...); !bytes.Equal(first, again) {
			t.Errorf("wrote\n%s\nand again\n%s", first, again)
		}
	})
}
