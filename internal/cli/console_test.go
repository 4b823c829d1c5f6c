package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// sourceFor returns the source of a console for a server, and for a scheduler that answers as handler does.
func sourceFor(t *testing.T, api *httptest.Server, handler http.HandlerFunc) consoleSource {
	t.Helper()
	scheduler := httptest.NewServer(handler)
	t.Cleanup(scheduler.Close)
	path := kubeconfig(t, api.URL, scheduler.URL)
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &path
	return consoleSource{flags, doctors}
}

// The console shows what the command line shows: each topic is the JSON of a verb.
func TestTopicsOfTheConsoleAreAnswersOfVerbs(t *testing.T) {
	nodes, pods, topologies := example(t)
	blocked, _ := waiting(t)
	pods = append(pods, blocked)
	api := apiServer(t, nodes, pods, topologies)
	s := sourceFor(t, api, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/v1/plugins/") {
			_, _ = io.WriteString(w, `{"a":{"name":"a"}}`)
			return
		}
		http.NotFound(w, r)
	})
	for topic, verb := range map[string]string{
		"pending":                   "explain -A",
		"pending/other":             "explain -n other",
		"pod/default/lse":           "explain pod/lse -n default",
		"nodes":                     "top cpu",
		"gpus":                      "top gpu",
		"node/epyc":                 "topology node/epyc",
		"quotas":                    "quota --rounds",
		"gangs":                     "gang",
		"pod/default/not-there":     "explain pod/not-there -n default",
		"node/not-there":            "topology node/not-there",
		"pod/other/" + blocked.Name: "explain pod/" + blocked.Name + " -n other",
	} {
		answer, err := s.Read(t.Context(), topic)
		words := append(strings.Fields(verb), "-o", "json", "--kubeconfig", *s.flags.KubeConfig)
		code, out, errOut := run(t, "tenon", words...)
		if err != nil {
			if want := "error: " + err.Error() + "\n"; code == 0 || !strings.HasSuffix(errOut, want) {
				t.Errorf("%s: the console says %v, tenon %s %d %q", topic, err, verb, code, errOut)
			}
			continue
		}
		if got, want := withoutAges(t, answer.JSON), withoutAges(t, []byte(out)); got != want || answer.Content == "" {
			t.Errorf("%s: the console shows\n%s\ntenon %s\n%s", topic, got, verb, want)
		}
	}
}

// What an operator looks at is the JSON of a verb too.
func TestTopicsOfOperationsAreAnswersOfVerbs(t *testing.T) {
	for topic, c := range map[string]struct{ api, verb string }{
		"evictions":    {evictionServer(t).URL, "evictions"},
		"evicted":      {evictionServer(t).URL, "evictions --past"},
		"reservations": {reservationServer(t).URL, "reservation"},
	} {
		path := kubeconfig(t, c.api, c.api)
		flags := genericclioptions.NewConfigFlags(true)
		flags.KubeConfig = &path
		answer, err := consoleSource{flags, doctors}.Read(t.Context(), topic)
		testkit.Check(t, err)
		words := append(strings.Fields(c.verb), "-o", "json", "--kubeconfig", path)
		code, out, errOut := run(t, "tenon", words...)
		if got, want := withoutAges(t, answer.JSON), withoutAges(t, []byte(out)); code != ExitOK || got != want {
			t.Errorf("%s: %d %s the console shows\n%s\ntenon %s\n%s", topic, code, errOut, got, c.verb, want)
		}
	}
}

// Of the gangs that the scheduler names, those of one namespace are shown; where no scheduler answers, only objects of
// that namespace are listed, so that its members need no right elsewhere.
func TestGangsOfOneNamespaceNeedRightsThereAlone(t *testing.T) {
	nodes, pods, topologies := example(t)
	other := pod("elsewhere", "", "1", "epyc", "")
	other.Namespace = "a"
	api := apiServer(t, nodes, append(pods, other), topologies)
	s := sourceFor(t, api, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"a/x":{"name":"a/x"},"ab/y":{"name":"ab/y"}}`)
	})
	answer, err := s.Read(t.Context(), "gangs/a")
	testkit.Check(t, err)
	if text := string(answer.JSON); !strings.Contains(text, `"a/x"`) || strings.Contains(text, "ab/y") {
		t.Errorf("got %s", text)
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/namespaces/default/") {
			api.Config.Handler.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	s = sourceFor(t, refusing, http.NotFound)
	s.flags.KubeConfig = new(kubeconfig(t, refusing.URL))
	if _, err = s.Read(t.Context(), "gangs/default"); err != nil {
		t.Errorf("gangs of default: %v", err)
	}
	if answer, err = s.Read(t.Context(), "gangs"); err == nil {
		t.Errorf("all gangs are read: %s", answer.JSON)
	}
}

// The console shows how far a node is taken over from its kubelet, as the map of the node does.
func TestTheModeOfANodeHasItsTakeover(t *testing.T) {
	two := topology(t, "two", shape{1, 1, 8, 2}, map[string]string{
		annotation.TopologyMode: "Own",
		annotation.TakeoverKey:  `{"phase":2,"since":"2026-03-01T00:00:00Z","remainingPods":3}`,
	})
	nodes := []corev1.Node{node("one", "8", nil), node("two", "8", nil)}
	api := apiServer(t, nodes, nil, []v1alpha2.NodeResourceTopology{two})
	s := sourceFor(t, api, http.NotFound)
	answer, err := s.Read(t.Context(), "modes")
	testkit.Check(t, err)
	var list struct{ Items []view.ModeOfNode }
	testkit.Check(t, json.Unmarshal(answer.JSON, &list))
	since := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	own := view.Mode{Mode: "Own", From: view.Origin{Source: view.FromAnnotation, Key: annotation.TopologyMode}}
	own.Takeover = &view.Takeover{Phase: 2, Since: &since, RemainingPods: 3}
	if len(list.Items) != 2 || list.Items[0].Takeover != nil {
		t.Fatalf("got %s", answer.JSON)
	}
	if diff := cmp.Diff(own, list.Items[1].Mode); diff != "" {
		t.Error(diff)
	}
	for args, want := range map[string]string{
		"topology":          "Own (phase 2)",
		"topology node/two": "take-over phase 2, the kubelet pins 3 pods",
	} {
		words := append(strings.Fields(args), "--kubeconfig", *s.flags.KubeConfig)
		if _, out, _ := run(t, "tenon", words...); !strings.Contains(out, want) {
			t.Errorf("tenon %s: no %q in\n%s", args, want, out)
		}
	}
}

// The console changes nothing: not even a pod is tried, as tenon status does.
func TestTheStatusOfTheConsoleTriesNoPod(t *testing.T) {
	nodes, pods, topologies := example(t)
	rest := apiServer(t, nodes, pods, topologies).Config.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		rest.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	answer, err := sourceFor(t, api, http.NotFound).Read(t.Context(), "status")
	testkit.Check(t, err)
	var status view.Status
	testkit.Check(t, json.Unmarshal(answer.JSON, &status))
	if len(status.Findings) == 0 || answer.Content == "" {
		t.Errorf("got %s", answer.JSON)
	}
}

// The console shows what the scheduler says of itself: its configuration, and with the status the paths that it serves.
func TestTheConsoleShowsWhatTheSchedulerRunsWith(t *testing.T) {
	nodes, pods, topologies := example(t)
	api, denied := apiServer(t, nodes, pods, topologies), false
	s := sourceFor(t, api, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case denied:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"message":"get on nodes is missing"}`)
		case r.URL.Path == "/apis/v1/__services__":
			_, _ = io.WriteString(w, `{"GET":["/apis/v1/decisions"]}`)
		case r.URL.Path == "/apis/v1/configuration":
			_, _ = io.WriteString(w, `{"settings":[{"field":"a","value":"1","origin":"f.yaml:3"}],"gates":[`+
				`{"name":"G","enabled":true,"default":false,"stage":"ALPHA","origin":"Tenon"}]}`)
		default:
			http.NotFound(w, r)
		}
	})
	answer, err := s.Read(t.Context(), "configuration")
	testkit.Check(t, err)
	var found view.Configuration
	testkit.Check(t, json.Unmarshal(answer.JSON, &found))
	if diff := cmp.Diff(view.Configuration{
		Settings: []view.Setting{{Field: "a", Value: "1", Origin: "f.yaml:3"}},
		Gates:    []view.Gate{{Name: "G", Enabled: true, Stage: "ALPHA", Origin: "Tenon"}},
	}, found); diff != "" || answer.Content == "" {
		t.Errorf("%s %q", diff, answer.Content)
	}
	answer, err = s.Read(t.Context(), "status")
	testkit.Check(t, err)
	var status view.Status
	testkit.Check(t, json.Unmarshal(answer.JSON, &status))
	if diff := cmp.Diff(map[string][]string{"GET": {"/apis/v1/decisions"}}, status.Endpoints); diff != "" {
		t.Error(diff)
	}
	denied = true
	if _, err = s.Read(t.Context(), "configuration"); err == nil ||
		!strings.Contains(err.Error(), "get on nodes is missing") {
		t.Errorf("without the right: %v", err)
	}
}

// withoutAges leaves out what changes with time alone.
func withoutAges(t *testing.T, text []byte) string {
	t.Helper()
	var content any
	testkit.Check(t, json.Unmarshal(text, &content))
	removePassing(content)
	out, err := json.Marshal(content)
	testkit.Check(t, err)
	return string(out)
}

func TestDecisionsOfTheConsoleAreThoseOfTheScheduler(t *testing.T) {
	nodes, pods, topologies := example(t)
	const kept = `[{"pod":"default/a","time":"2026-01-01T00:00:00Z","node":"n","feasible":1,"of":1,"scores":null}]`
	s := sourceFor(t, apiServer(t, nodes, pods, topologies), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/v1/decisions" {
			t.Errorf("the scheduler is asked for %s", r.URL)
		}
		_, _ = io.WriteString(w, kept)
	})
	answer, err := s.Read(t.Context(), "decisions")
	testkit.Check(t, err)
	const want = `{"apiVersion":"cli.tenon.sh/v1","items":` + kept + `,"kind":"DecisionList"}`
	var got, wanted any
	testkit.Check(t, json.Unmarshal(answer.JSON, &got))
	testkit.Check(t, json.Unmarshal([]byte(want), &wanted))
	if diff := cmp.Diff(wanted, got); diff != "" || answer.Content == "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTopicsThatDoNotExistAreRefused(t *testing.T) {
	nodes, pods, topologies := example(t)
	s := sourceFor(t, apiServer(t, nodes, pods, topologies), http.NotFound)
	for _, topic := range []string{
		"", "secrets", "node/", "pod/", "pod/default", "pod/default/", "pending/", "gangs/",
		"<script>alert(1)</script>",
	} {
		_, err := s.Read(t.Context(), topic)
		var refused *console.Refusal
		if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest ||
			!strings.Contains(refused.Text, "use pending") {
			t.Errorf("topic %q: got %v", topic, err)
		}
	}
	if _, err := s.Read(t.Context(), "pod/default/../secrets"); err == nil {
		t.Error("a path is taken for a name")
	}
}

func TestTenThousandPendingPodsAreOneAnswer(t *testing.T) {
	nodes, _, topologies := example(t)
	const many = 10_000
	pods := make([]corev1.Pod, many)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("p-%05d", i), "LS", "1", "", "")
		pods[i].Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/3 nodes are available: 3 Insufficient <b>cpu</b>.",
		}}
	}
	s := sourceFor(t, apiServer(t, nodes, pods, topologies), http.NotFound)
	answer, err := s.Read(t.Context(), "pending")
	testkit.Check(t, err)
	var list struct {
		Items []view.PendingGroup
	}
	testkit.Check(t, json.Unmarshal(answer.JSON, &list))
	if len(list.Items) != 1 || list.Items[0].Count != many || len(list.Items[0].Pods) != many {
		t.Errorf("got %d groups", len(list.Items))
	}
	if len(answer.JSON) > 1<<20 {
		t.Errorf("the answer has %d bytes", len(answer.JSON))
	}
}

func TestTheConsolePassesQuestionsOn(t *testing.T) {
	nodes, pods, topologies := example(t)
	s := sourceFor(t, apiServer(t, nodes, pods, topologies), func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/apis/v1/whatif" {
			t.Errorf("got %s %s %v", r.Method, r.URL, err)
		}
		if strings.Contains(string(body), "refuse") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"message":"pod default/refuse does not exist"}`)
			return
		}
		_, _ = w.Write(body)
	})
	const ask = `"ask":{"pods":["default/a"],"mode":"preempt"}}`
	for question, want := range map[string]string{
		`{"ask":{"pods":["default/a"]}}`: `{"ask":{"pods":["default/a"]}}`,
		`{"changes":[{"addPod":"kind: Pod\nmetadata: {name: a}"},{"cordon":"epyc"}],` + ask: `{"changes":[{"addPod":` +
			`{"kind":"Pod","metadata":{"name":"a"}}},{"cordon":"epyc"}],` + ask,
		`{"changes":[{"addPod":{"kind":"Pod"}}],` + ask: `{"changes":[{"addPod":{"kind":"Pod"}}],` + ask,
		`{"ask":{"pods":["default/refuse"]}}`:           "400 pod default/refuse does not exist",
		`{"asks":{}}`:                                   `400 read the question: json: unknown field "asks"`,
		`not JSON`:                                      "400 read the question: invalid character",
		`{"changes":[{"addPod":"a: 1\na: 2"}]}`:         "400 changes[0].addPod: ",
	} {
		answer, err := s.WhatIf(t.Context(), []byte(question))
		got := string(answer)
		if refused := (*console.Refusal)(nil); errors.As(err, &refused) {
			got = fmt.Sprintf("%d %s", refused.Status, refused.Text)
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", question, got, want)
		}
	}
}

func TestAConsoleForOtherMachinesIsRefused(t *testing.T) {
	code, _, errOut := run(t, "tenon", "console", "--listen", "0.0.0.0:8080")
	const want = `--listen "0.0.0.0:8080" is not allowed: use a loopback address`
	if code != ExitUsage || !strings.Contains(errOut, want) {
		t.Errorf("got %d %q", code, errOut)
	}
}

// TestThePastIsThatOfTheJournal: of the newest file, or of a named one. A scheduler without a journal has none.
func TestThePastIsThatOfTheJournal(t *testing.T) {
	api := apiServer(t, nil, nil, nil)
	answers := map[string]string{"": "new", "old": "old"} // names of files by what was asked for
	s := sourceFor(t, api, func(w http.ResponseWriter, r *http.Request) {
		name, known := answers[r.URL.Query().Get("file")]
		if r.URL.Path != "/apis/v1/journal" || !known {
			http.NotFound(w, r)
			return
		}
		file, err := view.JournalOf(name, []byte(name+" lines"))
		file.Earlier = "before-" + name
		testkit.Check(t, err)
		testkit.Check(t, json.NewEncoder(w).Encode(file))
	})
	s.doctor.Past = func(name string, file io.Reader) (view.Past, error) {
		text, err := io.ReadAll(file)
		return view.Past{File: name, Nodes: []view.PastNode{{Node: string(text)}}}, err
	}
	past := func(topic string) (p view.Past, err error) {
		t.Helper()
		answer, err := s.Read(t.Context(), topic)
		if err == nil {
			testkit.Check(t, json.Unmarshal(answer.JSON, &p))
			if answer.Keep != pastKept {
				t.Errorf("%s is kept for %v", topic, answer.Keep)
			}
		}
		return p, err
	}
	for topic, want := range map[string]view.Past{
		"past":     {File: "new", Earlier: "before-new", Nodes: []view.PastNode{{Node: "new lines"}}},
		"past/old": {File: "old", Earlier: "before-old", Nodes: []view.PastNode{{Node: "old lines"}}},
	} {
		got, err := past(topic)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", topic, err, diff)
		}
	}
	if _, err := past("past/gone"); err == nil {
		t.Error("no error for a file that does not exist")
	}
	clear(answers)
	if got, err := past("past"); err != nil || got.File != "" {
		t.Errorf("without a journal: %+v, %v", got, err)
	}
	s.doctor.Past = nil
	if got, err := past("past"); err != nil || got.File != "" {
		t.Errorf("without a reader of journals: %+v, %v", got, err)
	}
}
