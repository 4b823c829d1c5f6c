package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
)

func node(name, uid string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

// newTokens returns tokens over a server that answers with the node that the request is bound to.
func newTokens(t *testing.T, objects ...runtime.Object) (*tokens, *fake.Clientset, *[]string) {
	t.Helper()
	dir, err := datadir.Resolve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	asked := &[]string{}
	client.PrependReactor("create", "serviceaccounts", func(a ktesting.Action) (bool, runtime.Object, error) {
		request := a.(ktesting.CreateAction).GetObject().(*authentication.TokenRequest)
		bound := request.Spec.BoundObjectRef
		*asked = append(*asked, bound.Kind+" "+bound.Name+" "+string(bound.UID))
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
	tk, client, asked := newTokens(t, node("a", "1"), node("stranger", "9"))
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
	if err := client.Tracker().Add(node("b", "2")); err != nil {
		t.Fatal(err)
	}
	step("a node that comes later gets its token then", epoch.Add(time.Minute), "Node b 2")
	step("at half of its life a token is renewed", epoch.Add(tokenLife/2), "Node a 1")
	if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("a", "3"), ""); err != nil {
		t.Fatal(err)
	}
	step("a Node that was made anew needs another token", epoch.Add(tokenLife/2), "Node a 3")

	text, err := os.ReadFile(filepath.Join(tk.dir.PKI(), "agent-a.token"))
	if err != nil || string(text) != "token of a" {
		t.Errorf("token file holds %q, %v", text, err)
	}
	if _, err := os.Stat(tk.dir.Credential(AgentCredential("a"))); err != nil {
		t.Error(err)
	}
}

func TestNodesOfAnEarlierStartAreRemoved(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(node("a", "1"), node("old", "2"))
	c := &Cluster{nodes: []datadir.Node{{Name: "a", Machine: "epyc-2s"}, {Name: "new", Machine: "epyc-2s"}}}
	if err := c.removeOldNodes(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
		"the next start goes on with the same machines":  {saved: []datadir.Node{epyc}, want: []datadir.Node{epyc}, treeKept: true},
		"other machines take their place":                {saved: []datadir.Node{epyc}, asked: []datadir.Node{{Name: "y-0", Machine: "snc2"}}, want: []datadir.Node{{Name: "y-0", Machine: "snc2"}}},
		"a node whose machine changes is generated anew": {saved: []datadir.Node{epyc}, asked: []datadir.Node{{Name: "x-0", Machine: "snc2"}}, want: []datadir.Node{{Name: "x-0", Machine: "snc2"}}},
		"a node that stays among others keeps its tree":  {saved: []datadir.Node{epyc}, asked: []datadir.Node{{Name: "y-0", Machine: "snc2"}, epyc}, want: []datadir.Node{{Name: "y-0", Machine: "snc2"}, epyc}, treeKept: true},
		"a first start without a word gets the default":  {want: defaults(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := datadir.Resolve(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(dir.Node("x-0"), 0o700); err != nil {
				t.Fatal(err)
			}
			if test.saved != nil {
				if err := dir.SaveNodes(test.saved); err != nil {
					t.Fatal(err)
				}
			}
			got, err := (&Cluster{dir: dir}).chooseNodes(test.asked)
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}
