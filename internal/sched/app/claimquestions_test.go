package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// oneCard requests one device.
func oneCard() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		},
	}}}}
}

// claimed gives a pod a claim of the template "one", or, with an =, one by name. A pod with a node has the given device
// of that node.
func (d *dra) claimed(ref, device string) object.PodOption {
	return func(p *corev1.Pod) {
		uid, name := types.UID("u-"+p.Name), "claim-"+p.Name
		use := corev1.PodResourceClaim{Name: "c", ResourceClaimTemplateName: &ref}
		if shared, named := strings.CutPrefix(ref, "="); named {
			name, use = shared, corev1.PodResourceClaim{Name: "c", ResourceClaimName: &shared}
		}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{use}
		c := d.claims[name]
		if c == nil {
			c = &resourcev1.ResourceClaim{Spec: oneCard()}
			c.Name, c.Namespace, c.UID = name, "default", types.UID(name)
			d.claims[name] = c
		}
		if use.ResourceClaimTemplateName != nil {
			c.OwnerReferences = []metav1.OwnerReference{{Controller: ptr.To(true), UID: uid}}
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &name}}
		}
		if device != "" {
			allocate(c, p.Name, device)
		}
	}
}

// mapped lets a pod request example.com/card, which class card maps. A pod with a node has the given device of that
// node, by a claim that was made for it.
func (d *dra) mapped(device string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["example.com/card"] = resource.MustParse("1")
		if device != "" {
			c := &resourcev1.ResourceClaim{Spec: oneCard()}
			c.Name, c.Namespace, c.UID = "made-"+p.Name, "default", types.UID("made-"+p.Name)
			allocate(c, p.Name, device)
			d.claims[c.Name] = c
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
		}
	}
}

// allocate gives a claim a device of a node for a pod.
func allocate(c *resourcev1.ResourceClaim, pod, device string) {
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{device[:1]},
		}}}},
	}}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Request: "r", Driver: "x", Pool: device[:1], Device: device[2:]},
	}
	c.Status.ReservedFor = append(c.Status.ReservedFor,
		resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("u-" + pod)})
}

// summary is what an answer says.
func summary(a *view.WhatIfAnswer) (out []string) {
	for _, p := range a.Placements {
		out = append(out, strings.TrimPrefix(p.Pod, "default/")+" on "+p.Node)
	}
	for i := range a.Unschedulable {
		p := &a.Unschedulable[i]
		out = append(out, strings.TrimPrefix(p.Pod, "default/")+": "+p.RootCause.Code.String())
	}
	for _, v := range a.Victims {
		out = append(out, "evicts "+strings.TrimPrefix(v.Pod, "default/"))
	}
	if a.Room != nil {
		for _, m := range a.Room.Moves {
			out = append(out, fmt.Sprintf("moves %s to %s", strings.TrimPrefix(m.Pod, "default/"), m.Target))
		}
	}
	if c := a.Capacity; c != nil {
		text := fmt.Sprintf("%d of %d", c.Pods, c.Room)
		if c.Gang != nil {
			text += fmt.Sprintf(", %d gangs", c.Gang.Fit)
		}
		for _, l := range c.Limits {
			text += " " + l.Code.String()
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// TestQuestionsAboutPodsWithClaims: nodes a and b have 32 CPUs each. Pods have claims of the template "one", for one
// device each, unless the case says otherwise.
func TestQuestionsAboutPodsWithClaims(t *testing.T) {
	const (
		count = `{"ask":{"mode":"count","pods":["default/p"]%s}}`
		asks  = `{"ask":{"pods":["default/p"]%s}}`
	)
	added := func(template string, pods ...string) string {
		var changes, names []string
		for _, name := range pods {
			names = append(names, `"default/`+name+`"`)
			changes = append(changes, fmt.Sprintf(`{"addPod":{"metadata":{"name":"%s"},"spec":{"schedulerName":`+
				`"tenon-scheduler","containers":[{"name":"c"}],"resourceClaims":[{"name":"c",`+
				`"resourceClaimTemplateName":"%s"}]}}}`, name, template))
		}
		return `{"changes":[` + strings.Join(changes, ",") + `],"ask":{"pods":[` + strings.Join(names, ",") + `]}}`
	}
	low, ofTeam := object.Priority(5000), object.Label(annotation.QuotaName, "team")
	for name, tt := range map[string]struct {
		onA, onB int
		pods     func(d *dra) []*corev1.Pod
		most     string // of the quota "team", which pod p is of
		question string
		want     []string
		wrong    string
	}{
		"copies of a pod with a claim each": {
			onA: 3, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.claimed("one", ""))}
			},
			question: fmt.Sprintf(count, ""), want: []string{"4 of 4 InsufficientClaimDevices"},
		},
		"copies of a running pod, whose device is in use": {
			onA: 3, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{bound("p", "a", list(0, 2), d.claimed("one", "a/d1"))}
			},
			question: fmt.Sprintf(count, ""), want: []string{"2 of 2 InsufficientClaimDevices"},
		},
		"copies that share a claim": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "8", d.claimed("=s", ""))}
			},
			question: fmt.Sprintf(count, ""), want: []string{"3 of 3 SharedPoolFloor"},
		},
		"copies in gangs": {
			onA: 3, onB: 2, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.claimed("one", ""))}
			},
			question: fmt.Sprintf(count, `,"members":2`), want: []string{"5 of 5, 2 gangs InsufficientClaimDevices"},
		},
		"copies under a quota of the class": {
			onA: 3, most: "2", pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.claimed("one", ""), ofTeam)}
			},
			question: fmt.Sprintf(count, ""), want: []string{"2 of 3 InsufficientClaimDevices"},
		},
		"copies that share a claim count once in the quota of the class": {
			onA: 1, most: "1", pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "8", d.claimed("=s", ""), ofTeam)}
			},
			question: fmt.Sprintf(count, ""), want: []string{"3 of 3 SharedPoolFloor"},
		},
		"no copy fits": {
			onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "b", list(0, 2), d.claimed("one", "b/d0")),
				}
			},
			question: fmt.Sprintf(count, ""),
			want:     []string{"0 of 0 InsufficientClaimDevices", "p: InsufficientClaimDevices"},
		},
		"added pods get claims of their template": {
			onA: 1, onB: 1, question: added("one", "p", "q", "r"),
			want: []string{"p on a", "q on b", "r: InsufficientClaimDevices"},
		},
		"the template does not exist": {
			onA: 1, question: added("none", "p"),
			wrong: `pod default/p: spec.resourceClaims[0]: resourceclaimtemplates.resource.k8s.io "none" not found`,
		},
		"a removed pod leaves the device of its claim": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), d.claimed("one", "a/d0")),
				}
			},
			question: `{"changes":[{"removePod":"default/o"}],"ask":{"pods":["default/p","default/o"]}}`,
			want:     []string{"o: InsufficientClaimDevices", "p on a"},
		},
		"a removed pod leaves its device to its successor": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{bound("o", "a", list(0, 2), d.claimed("one", "a/d0"))}
			},
			question: `{"changes":[{"removePod":"default/o"}],"ask":{"pods":["default/o"]}}`,
			want:     []string{"o on a"},
		},
		"another pod keeps the claim of a removed one": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), d.claimed("=s", "a/d0")),
					bound("k", "a", list(2, 2), d.claimed("=s", "a/d0")),
				}
			},
			question: `{"changes":[{"removePod":"default/o"}],"ask":{"pods":["default/p"]}}`,
			want:     []string{"p: InsufficientClaimDevices"},
		},
		"all pods of a claim are removed": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), d.claimed("=s", "a/d0")),
					bound("k", "a", list(2, 2), d.claimed("=s", "a/d0")),
				}
			},
			question: `{"changes":[{"removePod":"default/o"},{"removePod":"default/k"}],"ask":{"pods":["default/p"]}}`,
			want:     []string{"p on a"},
		},
		"the only pod of a claim is evicted": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), low, d.claimed("one", "a/d0")),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"preempt"`), want: []string{"evicts o", "p on a"},
		},
		"all pods of a claim are evicted": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), low, d.claimed("=s", "a/d0")),
					bound("k", "a", list(2, 2), low, d.claimed("=s", "a/d0")),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"preempt"`), want: []string{"evicts k", "evicts o", "p on a"},
		},
		"a pod that may not be evicted keeps the claim": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.claimed("one", "")),
					bound("o", "a", list(0, 2), low, d.claimed("=s", "a/d0")),
					bound("k", "a", list(2, 2), d.claimed("=s", "a/d0")),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"preempt"`), want: []string{"p: InsufficientClaimDevices"},
		},
		"room is made by moving a pod to another device": {
			onA: 1, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "16", d.claimed("one", "")), bound("o", "a", list(0, 2), d.claimed("one", "a/d0")),
					bound("full", "b", list(0, 20)),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"makeRoom","movable":[{"uid":"u-o"}]`),
			want:     []string{"moves o to b", "p on a"},
		},
		"no room where the moved pod finds no device": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "16", d.claimed("one", "")), bound("o", "a", list(0, 2), d.claimed("one", "a/d0")),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"makeRoom","movable":[{"uid":"u-o"}]`),
			want:     []string{"p: InsufficientClaimDevices"},
		},
		"a pod does not move without its claim": {
			onA: 1, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "16", d.claimed("one", "")), bound("o", "a", list(0, 2), d.claimed("=s", "a/d0")),
					bound("full", "b", list(0, 20)),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"makeRoom","movable":[{"uid":"u-o"}]`),
			want:     []string{"p: InsufficientClaimDevices"},
		},
		"copies of a pod with an extended resource": {
			onA: 3, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.mapped(""))}
			},
			question: fmt.Sprintf(count, ""), want: []string{"4 of 4 InsufficientClaimDevices"},
		},
		"copies of a running pod with an extended resource": {
			onA: 3, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{bound("p", "a", list(0, 2), d.mapped("a/d1"))}
			},
			question: fmt.Sprintf(count, ""), want: []string{"2 of 2 InsufficientClaimDevices"},
		},
		"a removed pod leaves the device of its extended resource": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.mapped("")), bound("o", "a", list(0, 2), d.mapped("a/d0"))}
			},
			question: `{"changes":[{"removePod":"default/o"}],"ask":{"pods":["default/p","default/o"]}}`,
			want:     []string{"o: InsufficientClaimDevices", "p on a"},
		},
		"a pod with an extended resource is evicted": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "2", d.mapped("")), bound("o", "a", list(0, 2), low, d.mapped("a/d0")),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"preempt"`), want: []string{"evicts o", "p on a"},
		},
		"room is made by moving a pod with an extended resource": {
			onA: 1, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					exclusive("p", "16", d.mapped("")), bound("o", "a", list(0, 2), d.mapped("a/d0")),
					bound("full", "b", list(0, 20)),
				}
			},
			question: fmt.Sprintf(asks, `,"mode":"makeRoom","movable":[{"uid":"u-o"}]`),
			want:     []string{"moves o to b", "p on a"},
		},
		"pods with other claims need other room": {
			onA: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{exclusive("p", "2", d.claimed("one", "")), exclusive("q", "2")}
			},
			question: `{"ask":{"mode":"makeRoom","pods":["default/p","default/q"]}}`,
			wrong:    "pod default/q has other requests than pod default/p",
		},
		"added pods under a changed quota of the class": {
			onA: 2, most: "2", question: strings.Replace(strings.ReplaceAll(added("one", "p", "q"), `"},"spec"`,
				`","labels":{"quota.scheduling.koordinator.sh/name":"team"}},"spec"`), `"changes":[`,
				`"changes":[{"setQuota":`+
					`{"name":"team","max":{"card.deviceclass.resource.k8s.io/devices":1}}},`, 1),
			want: []string{"p on a", "q: QuotaExceeded"},
		},
		"a gang grows by members with claims": {
			onA: 2, onB: 1, pods: func(d *dra) []*corev1.Pod {
				return []*corev1.Pod{
					bound("m", "a", list(0, 2), d.claimed("one", "a/d0"), object.Gang("g", "1")),
				}
			},
			question: `{"changes":[{"scaleGang":{"gang":"default/g","to":4}}],"ask":{"pods":["default/m-whatif-1",` +
				`"default/m-whatif-2","default/m-whatif-3"]}}`,
			want: []string{"m-whatif-1 on b", "m-whatif-2 on a", "m-whatif-3: InsufficientClaimDevices"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dra{
				claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
				devices: cards(tt.onA), onB: cards(tt.onB),
			}
			a := newAsked(t, "a", "b")
			a.core.Imagined.SharedDRAManager = d
			a.config.Client = fake.NewClientset(&resourcev1.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"},
				Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: oneCard()},
			})
			a.whatIf.Accounts = a.questions(t.Context()).Accounts // with this client
			if tt.most != "" {
				a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{}, corev1.ResourceList{
					corev1.ResourceName(quota.ClassDimension("card")): resource.MustParse(tt.most),
				}))
			}
			if tt.pods != nil {
				for _, pod := range tt.pods(d) {
					a.add(pod)
					a.gangs.PutPod(pod)
				}
			}
			for _, c := range d.claims {
				a.quotas.PutClaim(c)
			}
			before := maps.Clone(d.claims)
			for range 2 { // the second question sees nothing of the first one
				answer, err := a.answer(tt.question)
				if tt.wrong != "" {
					if err == nil || !strings.Contains(err.Error(), tt.wrong) {
						t.Errorf("got %v, want %s", err, tt.wrong)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, summary(answer)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(before, d.claims); diff != "" {
				t.Errorf("the claims of the cluster have changed:\n%s", diff)
			}
		})
	}
}

// TestAForecastKnowsWhenDevicesOfClaimsAreFree: node a has some devices, and room for all pods.
func TestAForecastKnowsWhenDevicesOfClaimsAreFree(t *testing.T) {
	for name, tt := range map[string]struct {
		devices int
		pods    func(d *dra) []*corev1.Pod
		want    []string
	}{
		"a claim of a template": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.claimed("one", "a/d0"), expects("1h"), since(0)),
				exclusive("p", "2", d.claimed("one", ""), expects("30m"), age(5)),
				exclusive("q", "2", d.claimed("one", ""), age(4)),
			}
		}, []string{"pod/default/p 13:00, after pod/default/r", "pod/default/q 13:30, after pod/default/p"}},
		"an extended resource": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.mapped("a/d0"), expects("1h"), since(0)),
				exclusive("p", "2", d.mapped(""), expects("30m"), age(5)),
				exclusive("q", "2", d.mapped(""), age(4)),
			}
		}, []string{"pod/default/p 13:00, after pod/default/r", "pod/default/q 13:30, after pod/default/p"}},
		"a claim by name": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.claimed("=s", "a/d0"), expects("1h"), since(0)),
				exclusive("p", "2", d.claimed("=t", ""), age(5)),
			}
		}, []string{"pod/default/p 13:00, after pod/default/r"}},
		"a claim that two pods share": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.claimed("=s", "a/d0"), expects("1h"), since(0)),
				bound("k", "a", list(2, 2), d.claimed("=s", "a/d0"), expects("2h"), since(0)),
				exclusive("p", "2", d.claimed("one", ""), age(5)),
				exclusive("q", "2", d.claimed("=s", ""), expects("30m"), age(4)),
			}
		}, []string{"pod/default/p 14:00, after pod/default/k", "pod/default/q now"}},
		"a gang": {2, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.claimed("one", "a/d0"), expects("1h"), since(0)),
				bound("k", "a", list(2, 2), d.claimed("one", "a/d1"), expects("2h"), since(0)),
				exclusive("g-0", "2", d.claimed("one", ""), object.Gang("g", "2"), age(5)),
				exclusive("g-1", "2", d.claimed("one", ""), object.Gang("g", "2"), age(5)),
			}
		}, []string{"gang/default/g 14:00, after pod/default/k"}},
		"a pod without an end": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{
				bound("r", "a", list(0, 2), d.claimed("one", "a/d0"), since(0)),
				exclusive("p", "2", d.claimed("one", ""), age(5)),
			}
		}, []string{"pod/default/p unknown: pods without a known end hold the room"}},
		"more devices than there are": {1, func(d *dra) []*corev1.Pod {
			return []*corev1.Pod{exclusive("p", "2", d.claimed("one", ""), func(*corev1.Pod) {
				d.claims["claim-p"].Spec.Devices.Requests[0].Exactly.Count = 2
			})}
		}, []string{"pod/default/p never: it would not fit if no other pod ran"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dra{
				claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
				devices: cards(tt.devices),
			}
			a := newTimed(t, "a")
			a.core.Imagined.SharedDRAManager = d
			a.know(tt.pods(d)...)
			if diff := cmp.Diff(tt.want, a.forecast()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
