package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// gangPods are a gang that runs, one that lacks a member, one without its PodGroup, and one that lists another.
func gangPods() []corev1.Pod {
	in := func(name, gangName, on string, more ...string) corev1.Pod {
		p := pod(name, "", "", on, "")
		p.Annotations[annotation.GangName] = gangName
		for i := 0; i < len(more); i += 2 {
			p.Annotations[more[i]] = more[i+1]
		}
		return p
	}
	lost := pod("lost-0", "", "", "", "")
	lost.Labels[annotation.PodGroup] = "lost"
	own := pod("own-0", "", "", "", "")
	own.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("own")}
	return []corev1.Pod{
		own,
		in("runs-0", "runs", "n", annotation.GangMinAvailable, "2"), in("runs-1", "runs", "n"),
		in("runs-2", "runs", ""),
		in("short-0", "short", "", annotation.GangMinAvailable, "3"), lost,
		in("lists-0", "lists", "", annotation.GangGroups, `["default/lists","other/external"]`),
	}
}

func gangWorld() *kube.Gangs {
	s := kube.NewGangs()
	pods := gangPods()
	for i := range pods {
		s.PutPod(&pods[i])
	}
	ended := object.PodGroup("default/ended", 2)
	ended.Status.Phase = v1alpha1.PodGroupFinished
	ended.Annotations = map[string]string{annotation.GangRule: "ray.io/RayCluster"}
	s.PutGroup(ended)
	return s
}

// ages replaces how old gangs are.
func ages(gangs []view.Gang) []view.Gang {
	for i := range gangs {
		gangs[i].CreateTime = metav1.Time{}.Time
	}
	return gangs
}

func TestGangsAsGolden(t *testing.T) {
	gangs := ages(gangsOf(gangWorld()))
	golden(t, "gang.txt", drawGangs(gangs, false, paint{}, 0))
	golden(t, "gang-wide.txt", drawGangs(gangs, true, paint{}, 0))
	var all string
	for i := range gangs {
		all += drawGang(&gangs[i], paint{}, 0) + "\n"
	}
	golden(t, "gang-one.txt", all)
	for _, line := range strings.Split(drawGangs(gangs, false, paint{ascii: true}, 60), "\n") {
		if len([]rune(line)) > 60 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
}

func TestGangsComeFromTheSchedulerOrTheObjects(t *testing.T) {
	scheduler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all := map[string]view.Gang{}
		for _, g := range gangsOf(gangWorld()) {
			g.Message = "says the scheduler"
			all[g.Name] = g
		}
		if err := json.NewEncoder(w).Encode(all); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(scheduler.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	rest := apiServer(t, nil, gangPods(), nil).Config.Handler
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/" + v1alpha1.GroupName + "/v1alpha1/podgroups":
		case "/apis/scheduling.k8s.io/v1alpha2/podgroups":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion":"scheduling.k8s.io/v1alpha2","kind":"PodGroupList","items":[{` +
				`"metadata":{"namespace":"default","name":"own"},` +
				`"spec":{"schedulingPolicy":{"gang":{"minCount":5}}}}]}`))
			return
		default:
			rest.ServeHTTP(w, r)
			return
		}
		list := v1alpha1.PodGroupList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupName + "/v1alpha1", Kind: "PodGroupList"},
			Items: []v1alpha1.PodGroup{{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupName + "/v1alpha1", Kind: "PodGroup"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost"},
				Spec:       v1alpha1.PodGroupSpec{MinMember: 7},
			}},
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	with, without := kubeconfig(t, api.URL, scheduler.URL), kubeconfig(t, api.URL)
	for name, c := range map[string]struct {
		args []string
		code int
		want []string // of the output, or of the error
	}{
		"the scheduler is asked": {[]string{"gang", "--kubeconfig", with}, ExitOK, []string{"says the scheduler"}},
		"without one the objects are read": {
			[]string{"gang", "lost", "--kubeconfig", without},
			ExitOK,
			[]string{"gang default/lost", "7 must start together, 1 exist", "GangNotReady"},
		},
		"a PodGroup of Kubernetes": {
			[]string{"gang", "own", "--kubeconfig", without},
			ExitOK,
			[]string{"PodGroup of Kubernetes", "5 must start together, 1 exist", "GangNotReady"},
		},
		"a PodGroup of Kubernetes as JSON": {
			[]string{"gang", "own", "-o", "json", "--kubeconfig", without},
			ExitOK,
			[]string{`"gangFrom": "GangFromNativePodGroup"`},
		},
		"as JSON": {
			[]string{"gang", "default/runs", "-o", "json", "--kubeconfig", without},
			ExitOK,
			[]string{`"kind": "Gang"`, `"minRequiredNumber": 2`, `"state": "Bound"`},
		},
		"names that explain takes": {
			[]string{"gang", "-o", "name", "--kubeconfig", without},
			ExitOK,
			[]string{"gang/default/lists\ngang/default/lost\n"},
		},
		"a gang that does not exist": {
			[]string{"gang", "shor", "--kubeconfig", without},
			ExitUsage,
			[]string{`gang "default/shor" not found`, "default/short"},
		},
		"a gang that is explained, with its members": {
			[]string{"explain", "gang/lost", "--kubeconfig", without},
			ExitOK,
			[]string{
				"gang default/lost", "7 must start together, 1 exist", "waits    GangNotReady",
				"pod default/lost-0   Pending",
			},
		},
		"a PodGroup that is explained, for programs": {
			[]string{"explain", "podgroup", "default/runs", "-o", "json", "--kubeconfig", without},
			ExitOK,
			[]string{`"kind": "gang"`, `"pod": "default/runs-1"`, `"boundChildren": [`},
		},
		"a gang that waits, with --exit-code": {
			[]string{"explain", "gang/lost", "--exit-code", "--kubeconfig", without}, ExitNegative, nil,
		},
		"an unknown gang that is explained": {
			[]string{"explain", "gang/shor", "--kubeconfig", without},
			ExitUsage,
			[]string{`gang "default/shor" not found`, "default/short"},
		},
		"the plugin is not enabled": {
			[]string{"gang", "--kubeconfig", without, "--diagnostics", plain.URL},
			ExitUnreachable,
			[]string{"without the plugin Coscheduling"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, "tenon", c.args...)
			if code != c.code {
				t.Errorf("exit status %d, want %d: %s", code, c.code, errs)
			}
			for _, want := range c.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("%q is missing in:\n%s%s", want, out, errs)
				}
			}
		})
	}
}
