package fabricated

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/admit"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// review says why a pod that waits for a node must wait: the room of the node, and the kubelet's own managers over what
// this kubelet has recorded.
type review struct {
	left    corev1.ResourceList // of the node as a whole
	room    *room               // nil where the kubelet chooses
	kubelet *admit.Kubelet
	// lost: no kubelet takes up a record without a shared CPU, which one with strict-cpu-reservation writes.
	lost bool
}

// notReviewed is the answer where the kubelet cannot be asked.
const notReviewed = "not reviewed: no kubelet starts over a record without a shared CPU"

// newReview reads a node at rest. dir is its kubelet's folder.
func newReview(t testing.TB, m machine.Description, dir string, object *corev1.Node, pods []corev1.Pod) review {
	t.Helper()
	copied := folder(t)
	before := records(t, dir)
	for name, text := range before {
		testkit.Check(t, os.WriteFile(filepath.Join(copied, name), []byte(text), 0o600))
	}
	j := review{left: object.Status.Allocatable.DeepCopy(), kubelet: startManagers(t, m, copied, object)}
	if after := records(t, copied); !maps.Equal(before, after) {
		if !strings.Contains(before["cpu_manager_state"], `"defaultCpuSet":"",`) {
			t.Fatalf("managers do not take up the records of the kubelet: %v became %v", before, after)
		}
		j.lost = true
	}
	for i := range pods {
		if p := &pods[i]; p.Spec.NodeName == object.Name && !ended(p) {
			subtract(j.left, requestOf(p))
			if refusal, err := j.kubelet.Admit(withoutRequests(p)); refusal != nil || err != nil {
				t.Fatalf("%s without requests: %v %v", title(p), refusal, err)
			}
		}
	}
	j.kubelet.Settled()
	if !m.Follow {
		r := newRoom(t, m, pods)
		r.remember(t, before["memory_manager_state"], pods)
		j.room = &r
	}
	return j
}

// remember notes the NUMA nodes on which the kubelet gave memory to pods that Tenon does not place.
func (r *room) remember(t testing.TB, file string, pods []corev1.Pod) {
	t.Helper()
	var record struct {
		Entries map[types.UID]map[string][]struct {
			Affinity []int `json:"numaAffinity"`
		} `json:"entries"`
	}
	testkit.Check(t, json.Unmarshal([]byte(file), &record))
	for i := range pods {
		p := &pods[i]
		if p.Labels[annotation.QoSClass] != "" || ended(p) {
			continue
		}
		uses := 0
		for _, blocks := range record.Entries[p.UID] {
			for _, b := range blocks {
				for _, id := range b.Affinity {
					uses |= 1 << r.index(id)
				}
			}
		}
		for _, pool := range statusOf(t, p).CPUSharedPools {
			uses |= 1 << r.index(int(pool.Node))
		}
		r.use(uses)
	}
}

// startManagers starts the managers of a kubelet that has its records in dir.
func startManagers(t testing.TB, m machine.Description, dir string, object *corev1.Node) *admit.Kubelet {
	t.Helper()
	parts, err := topo.New(m.Spec())
	testkit.Check(t, err)
	k, err := admit.Open(klog.NewContext(context.Background(), logr.Discard()), admit.Options{
		Machine: parts, Settings: m.Kubelet, Dir: dir, Reconcile: time.Hour,
		Node:   func(context.Context, bool) (*corev1.Node, error) { return object, nil },
		Update: func(string, string) error { return nil },
	})
	testkit.Check(t, err)
	t.Cleanup(k.Close)
	return k
}

// folder is t.TempDir for managers: their goroutine may be in the middle of a last write when the test ends.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenon-review-")
	testkit.Check(t, err)
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			if time.Now().After(end) {
				t.Errorf("remove the records of managers: %v", err)
				return
			}
		}
	})
	return dir
}

// records are the files of a kubelet's managers.
func records(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"cpu_manager_state", "memory_manager_state"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		testkit.Check(t, err)
		files[name] = string(text)
	}
	return files
}

// withoutRequests is a pod that managers count as active, without allocating anew what it has by their records: the
// same containers, which request nothing.
func withoutRequests(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.QOSClass = "" // computed from the requests
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Resources = corev1.ResourceRequirements{}
		}
	}
	return p
}

// why says why a pod must wait; "" when there is room for it.
func (j review) why(t testing.TB, p *corev1.Pod) string {
	t.Helper()
	rest := j.left.DeepCopy()
	subtract(rest, requestOf(p))
	for name, q := range rest {
		if q.Sign() < 0 {
			return "the node has too little " + string(name)
		}
	}
	if j.room != nil {
		if why := j.room.waits(claimOf(t, p)); why != "" {
			return why
		}
	}
	if j.lost {
		return notReviewed
	}
	refusal, err := j.kubelet.Admit(p)
	testkit.Check(t, err)
	if refusal != nil {
		return fmt.Sprintf("the kubelet: %s: %s", refusal.Reason, refusal.Message)
	}
	j.kubelet.Forget(p.UID)
	return ""
}

// subtract takes amounts off a list.
func subtract(list, amounts corev1.ResourceList) {
	for name, q := range amounts {
		left := list[name]
		left.Sub(q)
		list[name] = left
	}
}

func title(p *corev1.Pod) string { return fmt.Sprintf("pod %s (%s)", p.Name, p.Annotations[kindKey]) }

// kindKey is the annotation of a pod with the kind of pod that a test asked for.
const kindKey = "test.tenon.sh/kind"
