package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func node(name, uid string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

// newTokens returns tokens over a server that answers with the node that the request is bound to.
func newTokens(t *testing.T, objects ...runtime.Object) (*tokens, *fake.Clientset, *[]string) {
	t.Helper()
	dir, err := datadir.Resolve(filepath.Join(t.TempDir(), "data"))
	testkit.Check(t, err)
	testkit.Check(t, dir.Make())
	client := fake.NewClientset(objects...)
	asked := &[]string{}
	var mu sync.Mutex // guards asked
	client.PrependReactor("create", "serviceaccounts", func(a ktesting.Action) (bool, runtime.Object, error) {
		request := a.(ktesting.CreateAction).GetObject().(*authentication.TokenRequest)
		bound := request.Spec.BoundObjectRef
		mu.Lock()
		*asked = append(*asked, bound.Kind+" "+bound.Name+" "+string(bound.UID))
		mu.Unlock()
		request.Status.Token = "token of " + bound.Name
		return true, request, nil
	})
	return &tokens{
		dir: dir, client: client, cluster: kubeconf.Cluster{Server: "https://127.0.0.1:1"}, held: map[string]token{},
		nodes: []string{"a", "b"},
	}, client, asked
}

func TestTokens(t *testing.T) {
	t.Parallel()
	epoch := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tk, client, asked := newTokens(t, node("a", "1"), node("outsider", "9"))
	step := func(name string, now time.Time, want ...string) {
		t.Helper()
		*asked = nil
		if err := tk.renew(t.Context(), now); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, *asked); diff != "" {
			t.Errorf("%s: tokens asked for (-want +got):\n%s", name, diff)
		}
	}
	step("a node that is there gets a token, others do not", epoch, "Node a 1")
	step("a fresh token is kept", epoch.Add(tokenLife/2-time.Second))
	testkit.Check(t, client.Tracker().Add(node("b", "2")))
	step("a node that comes later gets its token then", epoch.Add(time.Minute), "Node b 2")
	step("at half of its life a token is renewed", epoch.Add(tokenLife/2), "Node a 1")
	testkit.Check(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("a", "3"), ""))
	step("a Node that was made anew needs another token", epoch.Add(tokenLife/2), "Node a 3")

	text, err := os.ReadFile(filepath.Join(tk.dir.PKI(), "agent-a.token"))
	if err != nil || string(text) != "token of a" {
		t.Errorf("token file holds %q, %v", text, err)
	}
	if _, err := os.Stat(tk.dir.Credential(AgentCredential("a"))); err != nil {
		t.Error(err)
	}
}

func TestOneNodesTokenDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	tk, _, _ := newTokens(t)
	var both sync.WaitGroup // requests that are under way at the same time
	both.Add(2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(corev1.NodeList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
				Items:    []corev1.Node{*node("a", "1"), *node("b", "2")},
			})
			return
		}
		both.Done()
		both.Wait()
		var request authentication.TokenRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Spec.BoundObjectRef.Name == "a" {
			http.Error(w, "the server is busy", http.StatusForbidden)
			return
		}
		request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
		request.Status.Token = "token"
		_ = json.NewEncoder(w).Encode(request)
	}))
	defer server.Close()
	tk.client = kubernetes.NewForConfigOrDie(&rest.Config{
		Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	done := make(chan error, 1)
	go func() { done <- tk.renew(t.Context(), time.Now()) }()
	select {
	case err := <-done:
		if err == nil || strings.Contains(err.Error(), "agent of b") {
			t.Errorf("error %v, want that of node a alone", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("tokens are requested one after the other")
	}
	if _, ok := tk.held["b"]; !ok || len(tk.held) != 1 {
		t.Errorf("held: %v, want a token of b alone", tk.held)
	}
}

func TestNodesOfAnEarlierStartAreRemoved(t *testing.T) {
	t.Parallel()
	placed := func(name, node string) *corev1.Pod { return object.Pod(name, object.On(node)) }
	client := fake.NewClientset(node("a", "1"), node("old", "2"), placed("stays", "a"), placed("goes", "old"),
		placed("waits", ""))
	var news []string
	c := &Cluster{
		nodes:  []datadir.Node{{Name: "a", Machine: "epyc-2s"}, {Name: "new", Machine: "epyc-2s"}},
		report: func(s Step) { news = append(news, s.Text) },
	}
	testkit.Check(t, c.removeOldNodes(t.Context(), client))
	if diff := cmp.Diff([]string{"removed 1 node of the last start with 1 pod: old"}, news); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	if len(pods.Items) != 2 {
		t.Errorf("pods left: %v, want those of no removed node", pods.Items)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	if len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("left: %v, want a alone", list.Items)
	}
}

func TestChooseNodes(t *testing.T) {
	t.Parallel()
	epyc := datadir.Node{Name: "x-0", Machine: "epyc-2s"}
	for name, test := range map[string]struct {
		saved, asked, want []datadir.Node
		treeKept           bool
	}{
		"the next start goes on with the same machines": {
			saved: []datadir.Node{epyc}, want: []datadir.Node{epyc},
			treeKept: true,
		},
		"other machines take their place": {
			saved: []datadir.Node{epyc},
			asked: []datadir.Node{{Name: "y-0", Machine: "snc2"}},
			want:  []datadir.Node{{Name: "y-0", Machine: "snc2"}},
		},
		"a node whose machine changes is generated anew": {
			saved: []datadir.Node{epyc},
			asked: []datadir.Node{{Name: "x-0", Machine: "snc2"}},
			want:  []datadir.Node{{Name: "x-0", Machine: "snc2"}},
		},
		"a node that stays among others keeps its tree": {
			saved: []datadir.Node{epyc},
			asked: []datadir.Node{{Name: "y-0", Machine: "snc2"}, epyc},
			want:  []datadir.Node{{Name: "y-0", Machine: "snc2"}, epyc}, treeKept: true,
		},
		"a first start without a word gets the default": {want: defaults(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := datadir.Resolve(filepath.Join(t.TempDir(), "data"))
			testkit.Check(t, err)
			testkit.Check(t, os.MkdirAll(dir.Node("x-0"), 0o700))
			if test.saved != nil {
				testkit.Check(t, dir.SaveNodes(test.saved))
			}
			got, err := (&Cluster{dir: dir}).chooseNodes(test.asked)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.saved != nil {
				if _, err := os.Stat(dir.Node("x-0")); (err == nil) != test.treeKept {
					t.Errorf("tree of x-0: %v, want kept: %v", err, test.treeKept)
				}
			}
			if next, err := dir.SavedNodes(); err != nil || !cmp.Equal(next, test.want) {
				t.Errorf("saved for the next start: %v, %v", next, err)
			}
		})
	}
}

func defaults(t *testing.T) []datadir.Node {
	t.Helper()
	nodes, err := Expand(DefaultMachines(), 0)
	testkit.Check(t, err)
	return nodes
}
